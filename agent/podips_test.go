package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// Whatever order the runtime gives a pod's addresses in, everybody sees that of
// the node: the status, the environment, the hosts file.
func TestAddressesHaveOneOrder(t *testing.T) {
	for given, want := range map[string]string{
		"fd00::9 010.0.0.9 10.0.0.9 10.0.0.10": "10.0.0.9,fd00::9",
		"10.0.0.9 fd00::9":                     "10.0.0.9,fd00::9",
		"bad fd00::9":                          "fd00::9",
	} {
		t.Run(given, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := deviceNode(t)
				n.rt.SetIPs(strings.Fields(given)...)
				p := newPod("p", runs("c"))
				for name, field := range map[string]string{"IP": "status.podIP", "IPS": "status.podIPs"} {
					p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{
						Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: field}},
					})
				}
				n.want = []*v1.Pod{p}
				l := n.start()
				settle()
				first, _, _ := strings.Cut(want, ",")
				var shown []string
				for _, ip := range l.pod("p").Status.PodIPs {
					shown = append(shown, ip.IP)
				}
				if got := strings.Join(shown, ","); got != want {
					t.Errorf("status has %s, want %s", got, want)
				}
				if ip, ips := n.env("c", "IP"), n.env("c", "IPS"); ip != first || ips != want {
					t.Errorf("environment has %s and %s, want %s and %s", ip, ips, first, want)
				}
				hosts, err := os.ReadFile(filepath.Join(n.root, "root/pods/uid-p/etc-hosts"))
				if at := strings.Index(string(hosts), first+"\t"); err != nil || at < 0 || strings.Contains(string(hosts), "010.0.0.9") {
					t.Errorf("hosts file %q, %v", hosts, err)
				}
				// The next agent, and the next container, see the same.
				l.stop()
				l = n.start()
				settle()
				n.rt.Kill(n.id("c"))
				settle()
				if ips := n.env("c", "IPS"); ips != want {
					t.Errorf("after a restart the environment has %s, want %s", ips, want)
				}
				l.stop()
			})
		})
	}
}
