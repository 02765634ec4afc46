package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// clash is the rule, for two ports.
func clash(a, b HostPort) bool {
	every := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.Port == b.Port && a.Protocol == b.Protocol && (a.IP == b.IP || every(a.IP) || every(b.IP))
}

// The table agrees with the rule for every pair.
func TestPortTable(t *testing.T) {
	var all []HostPort
	for _, ip := range []string{"", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2", "fd00::1", "some"} {
		for _, proto := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP} {
			for _, port := range []int32{80, 81} {
				all = append(all, HostPort{ip, proto, port})
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			if got, want := tableOf([]HostPort{a}).clashes(b), clash(a, b); got != want {
				t.Errorf("%+v beside %+v: clash %t, want %t", b, a, got, want)
			}
			for _, c := range all {
				if got, want := tableOf([]HostPort{a, c}).clashes(b), clash(a, b) || clash(c, b); got != want {
					t.Errorf("%+v beside %+v and %+v: clash %t, want %t", b, a, c, got, want)
				}
			}
		}
	}
}

// manyPorts is a pod with twenty thousand ports.
func manyPorts(proto v1.Protocol) *v1.Pod {
	p := goodPod()
	for i := range 20000 {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{HostPort: int32(1 + i), Protocol: proto})
	}
	return p
}

func TestManyHostPorts(t *testing.T) {
	node, a, b := &Node{}, manyPorts(v1.ProtocolTCP), manyPorts(v1.ProtocolUDP)
	if r := node.ports(a, []*v1.Pod{b, b, b, b}); r != nil {
		t.Errorf("%+v", r)
	}
	if r := node.ports(a, []*v1.Pod{b, a}); r == nil || r.Reason != "NodePorts" || r.Message != "host port 1/TCP is taken by pod prod/web" {
		t.Errorf("%+v", r)
	}
}
