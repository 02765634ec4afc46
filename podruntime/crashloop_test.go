package podruntime

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

// What keeps ending is started again at once, and then after 10 s, 20 s and so
// on from its end. What cannot even be started is no better off; only its
// first retry waits a second.
func TestCrashLoop(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command []string
		want    []int // seconds
	}{
		{"ends", []string{"exit", "3"}, []int{0, 0, 10, 30, 70, 150, 310, 610}},
		{"cannot be started", []string{"/nope"}, []int{0, 1, 11, 31, 71, 151, 311, 611}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New()
				rt.AddImage("img")
				m, err := New(Config{Runtime: rt, Images: present{}, PodLogsDir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				w := build(v1.RestartPolicyAlways, nil, "a")
				w.pod.Spec.Containers[0].Command = tc.command
				begin := time.Now()
				var starts []int
				for len(starts) < len(tc.want) {
					pod, err := cri.NewReader(rt).Inspect(t.Context(), w.pod.UID)
					if err != nil {
						t.Fatal(err)
					}
					rt.ForgetCalls()
					res := m.Sync(t.Context(), request(t, w, pod))
					for range rt.Calls("StartContainer") {
						starts = append(starts, int(time.Since(begin).Seconds()))
					}
					var held interface{ RetryAt() time.Time }
					if errors.As(res.Err(), &held) {
						time.Sleep(time.Until(held.RetryAt()))
					}
				}
				if !slices.Equal(starts, tc.want) {
					t.Errorf("starts after %v s, want %v", starts, tc.want)
				}
			})
		})
	}
}

// Of two containers that keep ending one is nearly always held. The remains of
// the other go nevertheless.
func TestDeadContainersGoBesideOneThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, nil)
		l.w.pod.Spec.Containers = append(l.w.pod.Spec.Containers, v1.Container{
			Name: "b", Image: "img", Command: []string{"sleep", "3s", "exit", "1"},
		})
		for range 20 {
			l.next()
			if n := len(l.look().Containers); n > 4 {
				t.Fatalf("%d containers are there, want at most two of each", n)
			}
		}
	})
}

// A pod whose sandbox died makes its containers anew although the runtime has
// not told yet how they ended: not as if they had been done.
func TestKilledIsNotDone(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyOnFailure, []string{"side*"}, "a")
	m := manager(t, r)
	mustSync(t, m, request(t, w, r.look()))
	r.pod.Sandboxes[0].State = observed.Exited
	mustSync(t, m, request(t, w, r.look()))
	if got := r.live(); got["side"] != 1 || got["a"] != 1 {
		t.Errorf("running in the new sandbox: %v, want side and a", got)
	}
}
