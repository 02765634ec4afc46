package podruntime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/criruntimetest"
)

// A container whose start lost its caller has not ended: nothing of it ran.
func TestAbandonedStartIsDoneOver(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, init := range [][]string{nil, {"i"}, {"i*"}} {
			r, w := newMemory(), build(policy, init, "a")
			mustSync(t, manager(t, r), request(t, w, r.look()))
			for i := range r.pod.Containers {
				c := &r.pod.Containers[i]
				*c = observed.Container{
					ID: c.ID, Name: c.Name, SandboxID: c.SandboxID, Hash: c.Hash, CreatedAt: c.CreatedAt,
					State: observed.Exited, ExitCode: 128, Reason: "StartError", FinishedAt: time.Now(), Abandoned: true,
				}
			}
			mustSync(t, manager(t, r), request(t, w, r.look()))
			for _, c := range r.look().Containers {
				if c.State != observed.Running || c.RestartCount != 0 {
					t.Errorf("policy %s, init %v: container %s is %v with restart count %d, want it to run with 0",
						policy, init, c.Name, c.State, c.RestartCount)
				}
			}
		}
	}
}

// Who gives up while the runtime makes something lets it finish, but does not
// wait for ever.
func TestInterruptedCallsFinish(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		for _, tc := range []struct {
			takes, want time.Duration // the call; the sync, that is interrupted after a second
			finished    bool
		}{
			{3 * time.Second, 3 * time.Second, true},
			{time.Hour, time.Second + finishing, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				rt := criruntimetest.New()
				rt.AddImage("img")
				rt.Delay(method, tc.takes)
				log := &events{}
				m, err := New(Config{Runtime: rt, Images: images{}, PodLogsDir: t.TempDir(), Events: log})
				if err != nil {
					t.Fatal(err)
				}
				w := build(v1.RestartPolicyAlways, nil, "a")
				w.pod.Spec.Containers[0].Args = []string{"sleep", "forever"}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				m.Sync(ctx, request(t, w, &observed.Pod{UID: w.pod.UID}))
				if took := time.Since(start); took != tc.want {
					t.Errorf("%s takes %v: Sync returns after %v, want %v", method, tc.takes, took, tc.want)
				}
				pod, err := cri.NewReader(rt).Inspect(t.Context(), w.pod.UID)
				if err != nil {
					t.Fatal(err)
				}
				made := map[string]bool{
					"RunPodSandbox":   len(pod.Sandboxes) == 1,
					"CreateContainer": len(pod.Containers) == 1,
					"StartContainer":  len(pod.Containers) == 1 && pod.Containers[0].State == observed.Running,
				}[method]
				if made != tc.finished {
					t.Errorf("%s takes %v: finished %v, want %v", method, tc.takes, made, tc.finished)
				}
				if len(log.warnings) > 0 {
					t.Errorf("%s takes %v: warnings %v", method, tc.takes, log.warnings)
				}
			})
		}
	}
}

// events keeps the warnings.
type events struct{ warnings []string }

func (e *events) Event(_ *v1.Pod, eventType, reason, message string) {
	if eventType == v1.EventTypeWarning {
		e.warnings = append(e.warnings, reason+": "+message)
	}
}
