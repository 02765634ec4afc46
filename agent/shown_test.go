package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
)

// A start of the agent flips no readiness that it cannot know: the disk lost the results of
// the probes, and the API server's source only remembers the pod as it was before. Its
// status is published once the server has said how it sees the pod, or the probe has.
func TestReadinessThatNobodyRemembers(t *testing.T) {
	for name, fails := range map[string]bool{"the server answers": false, "the probe fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, c := newNode(t), newCluster()
				sink := &unready{Sink: c}
				api := newAPISource()
				api.kind = podmgr.API
				n.more = []podmgr.Source{api}
				n.configure = func(cfg *agent.Config) { cfg.Status.Sink = sink }
				pod := newPod("remote", runs("main"))
				pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
					ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
					PeriodSeconds: 60, TimeoutSeconds: 60, FailureThreshold: 1,
				}
				c.pods["remote"] = pod.DeepCopy()
				l := n.start()
				api.tell(pod)
				time.Sleep(time.Hour)
				shown := c.pods["remote"].DeepCopy()
				if st := shown.Status; len(st.ContainerStatuses) != 1 || !st.ContainerStatuses[0].Ready {
					t.Fatalf("not ready: %+v", st)
				}
				l.stop()
				sink.forget()
				if err := os.RemoveAll(filepath.Join(n.root, "probes")); err != nil {
					t.Fatal(err)
				}

				n.rt.Delay("ExecSync", 30*time.Second) // the first probe is over then
				if fails {
					n.rt.Fail("ExecSync", errProbe(1))
				}
				l = n.start()
				api.snapshots <- podmgr.Snapshot{Pods: []*v1.Pod{pod.DeepCopy()}, Partial: true}
				time.Sleep(20 * time.Second)
				if was := sink.forget(); len(was) > 0 {
					t.Errorf("published as unready: %v", was)
				}
				if !fails {
					api.tell(shown)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				ready := c.pods["remote"].Status.ContainerStatuses[0].Ready
				if was := sink.forget(); ready == fails || len(was) > 0 != fails {
					t.Errorf("ready %t, published as unready %v", ready, was)
				}
				if st := l.pod("remote").Status; st.ContainerStatuses[0].Ready == fails {
					t.Errorf("shown here as %+v", st.ContainerStatuses[0])
				}
				l.stop()
			})
		})
	}
}

// errProbe is the end of a probe's command with a code.
type errProbe int

func (errProbe) Error() string   { return "command ended" }
func (e errProbe) ExitCode() int { return int(e) }
