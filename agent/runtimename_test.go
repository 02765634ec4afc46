package agent_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// Container IDs bear the runtime's name; a runtime that cannot say it holds up
// nothing.
func TestRuntimeName(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			if fails {
				n.rt.Fail("Version", errors.New("not today"))
			}
			n.want = []*v1.Pod{newPod("web", runs("c"))}
			l := n.start()
			defer l.stop()
			settle()
			want := map[bool]string{false: "critest://", true: "containerd://"}[fails]
			if id := l.pod("web").Status.ContainerStatuses[0].ContainerID; !strings.HasPrefix(id, want) {
				t.Errorf("container ID %q, want one that begins with %q", id, want)
			}
			if asked := len(n.rt.Calls("Version")); asked != 1 {
				t.Errorf("the runtime was asked for its name %d times", asked)
			}
		})
	}
}
