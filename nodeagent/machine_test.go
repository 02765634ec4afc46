package nodeagent

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// What is reserved is taken off what the node offers, and never below zero.
func TestValidateReserved(t *testing.T) {
	c, _, err := load(t, configHead+"staticPodPath: /m\nfailCgroupV1: false\nfailSwapOn: false\nsystemReserved: {cpu: 100m, pid: '10', memory: 1Gi}\nkubeReserved: {cpu: 150m, memory: 1024Ti}\nmaxPods: 7\n",
		strings.Fields("--root-dir /does/not/exist --hostname-override Me --node-ip 192.0.2.9 --node-labels a=b")...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := nodeOf(c)
	if err != nil {
		t.Fatal(err)
	}
	cpu := n.Capacity.Cpu().MilliValue()
	if got := n.Allocatable.Cpu().MilliValue(); got != cpu-250 {
		t.Errorf("allocatable cpu %dm of %dm, want 250m less", got, cpu)
	}
	if !n.Allocatable.Memory().IsZero() || n.Capacity.Memory().IsZero() {
		t.Errorf("allocatable memory %v of %v, want 0", n.Allocatable.Memory(), n.Capacity.Memory())
	}
	if _, ok := n.Allocatable["pid"]; ok || n.Allocatable.Pods().Value() != 7 {
		t.Errorf("allocatable %v", n.Allocatable)
	}
	if n.Name != "me" || len(n.IPs) != 1 || n.IPs[0] != "192.0.2.9" || n.Labels["a"] != "b" {
		t.Errorf("node %q, %q, %v", n.Name, n.IPs, n.Labels)
	}
}

func TestNodeIPs(t *testing.T) {
	all := []string{"127.0.0.1", "::1", "fe80::1", "10.0.0.7", "fd00::7"}
	for _, tc := range []struct {
		flag string
		all  []string
		want []string
	}{
		{"192.0.2.1", all, []string{"192.0.2.1"}},
		{" fd00::1 , 192.0.2.1", all, []string{"fd00::1", "192.0.2.1"}},
		{"0.0.0.0", all, []string{"10.0.0.9"}}, // the detected one
		{"::", all, []string{"fd00::7"}},
		{"::", []string{"127.0.0.1", "::1"}, []string{"10.0.0.9"}}, // better than none
	} {
		c, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: &kubeletconfig.Flags{RootDir: "/", NodeIP: tc.flag}})
		if err != nil {
			t.Errorf("%s: %v", tc.flag, err)
			continue
		}
		if got := nodeIPs(c.NodeIPs, []string{"10.0.0.9"}, tc.all); !slices.Equal(got, tc.want) {
			t.Errorf("--node-ip=%s on a machine with %v: %v, want %v", tc.flag, tc.all, got, tc.want)
		}
	}
}
