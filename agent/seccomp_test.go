package agent_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// A profile of a pod's own is a file below the root directory, as with the kubelet.
func TestLocalSeccompProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		p := newPod("p", runs("c"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{
			Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("profiles/own.json"),
		}}
		n.want = []*v1.Pod{p}
		l := n.start()
		settle()
		got := n.config("c").GetLinux().GetSecurityContext().GetSeccomp().GetLocalhostRef()
		if want := filepath.Join(n.root, "root/seccomp/profiles/own.json"); got != want {
			t.Errorf("the runtime is told %q, want %q", got, want)
		}
		l.stop()
	})
}
