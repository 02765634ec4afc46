package probe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
)

// Probes of a pod that hang for an hour do not keep those of another waiting.
func TestHangingProbesOfAPodDelayNoOther(t *testing.T) {
	exec := func(word string) v1.ProbeHandler {
		return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{word}}}
	}
	grpc := func(word string) v1.ProbeHandler {
		return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1, Service: &word}}
	}
	for _, c := range []struct {
		name       string
		handler    func(word string) v1.ProbeHandler
		containers int
	}{
		{"33 commands", exec, 11},
		{"201 commands", exec, 67},
		{"600 gRPC services", grpc, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &runtime{}
				r := newRig(t, probe.Config{Exec: rt, GRPC: func(ctx context.Context, _, word string) (check.Outcome, string, error) {
					if _, _, err := rt.ExecSync(ctx, "b", []string{word}, 0); err != nil {
						return check.Failure, err.Error(), nil //nolint:nilerr // that is the answer
					}
					return check.Success, "", nil
				}})
				pod, shown := podOf(), []string(nil)
				for i := range c.containers {
					hangs := &v1.Probe{ProbeHandler: c.handler("hang"), PeriodSeconds: 1, TimeoutSeconds: 3600, FailureThreshold: 1}
					name := fmt.Sprint("c", i)
					pod.Spec.Containers = append(pod.Spec.Containers,
						v1.Container{Name: name, ReadinessProbe: hangs, LivenessProbe: hangs}, v1.Container{Name: name + "r", ReadinessProbe: hangs})
					shown = append(shown, name, name, name+"r", name+"r")
				}
				r.fresh(pod, shown...)
				r.wait(5 * sec)
				other := podOf(v1.Container{Name: "b", ReadinessProbe: &v1.Probe{ProbeHandler: c.handler("quick"), PeriodSeconds: 10, TimeoutSeconds: 1}})
				other.UID, other.Name = "2", "bystander"
				obs := shows(observed.Running, "b", "b")
				obs.UID = "2"
				r.Observe(other, &observed.Pod{UID: "2", ObservedAt: time.Now()})
				r.Observe(other, obs)
				r.wait(time.Hour)
				if n := rt.count("b quick"); n < 360 {
					t.Errorf("%d checks of the other pod in an hour, want 360", n)
				}
				for _, p := range []*v1.Pod{pod, other} {
					r.Remove(p.UID)
				}
				r.stop()
			})
		})
	}
}
