package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
)

// A pod that is only remembered and that the runtime has nothing of may be over: it waits for
// the API server, if that has answered since the machine booted. One that runs goes on.
func TestRememberedPodsThatMayBeOver(t *testing.T) {
	for boot, waits := range map[string]bool{"first": true, "second": false} {
		t.Run(boot, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				api := newAPISource()
				api.kind = podmgr.API
				n.more = []podmgr.Source{api}
				id := "first"
				n.configure = func(cfg *agent.Config) { cfg.Volumes.BootID = id }
				runs, over := newPod("runs", runs("c")), newPod("over", runs("c"))
				l := n.start()
				api.tell(runs)
				settle()
				l.wantPhase("runs", v1.PodRunning)
				l.stop()

				id = boot
				l = n.start()
				api.snapshots <- podmgr.Snapshot{Pods: []*v1.Pod{runs.DeepCopy(), over.DeepCopy()}, Partial: true}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				l.wantPhase("runs", v1.PodRunning)
				if _, running := n.containers(); running["over/c"] > 0 == waits {
					t.Errorf("boot %s: %v run", boot, running)
				}
				if why := l.why("over"); waits && !strings.Contains(why, "may have ended") {
					t.Errorf("it waits for %q", why)
				}
				api.tell(runs, over)
				settle()
				l.wantPhase("over", v1.PodRunning)
				l.stop()
			})
		})
	}
}

// Nothing of boots is recorded where there is no API server.
func TestNoBootIsRecordedWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		l := n.start()
		settle()
		l.stop()
		if _, err := os.Stat(filepath.Join(n.root, "boot")); err == nil {
			t.Error("there is a record of the boot")
		}
	})
}
