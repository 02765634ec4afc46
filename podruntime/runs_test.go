package podruntime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// The waits after failures in a row grow, what was seen has its first failure
// free, and what lasted begins anew.
func TestWaitsAfterBrokenRuns(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		seen bool
		must bool
		last time.Duration // how long each lasts before it fails
		want []time.Duration
	}{
		{"never seen", false, false, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"seen", true, false, time.Second, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second}},
		{"seen, and runs unlisted", true, true, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"lasted a minute", true, false, time.Minute, []time.Duration{0, 0, 0}},
		{"lasted a minute, never seen", false, false, time.Minute, []time.Duration{time.Second, time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPodRuns()
				for i, want := range tc.want {
					p.started("c", "id", time.Now())
					time.Sleep(tc.last)
					obs := &observed.Pod{UID: "u", ObservedAt: time.Now()}
					if tc.seen {
						obs.Containers = []observed.Container{{ID: "id", Name: "c", State: observed.Running}}
					}
					p.learn(obs, time.Now())
					if broken := p.learn(&observed.Pod{UID: "u", ObservedAt: time.Now()}, time.Now()); len(broken) != 1 || broken[0] != "id" {
						t.Fatalf("contradicted are %q", broken)
					}
					wait := time.Duration(0)
					r := p.of("c")
					if err := r.strike(tc.must, boom, time.Now()); err != nil {
						r.Err = boom
						held := (*heldError)(nil)
						if !errors.As(err, &held) || !errors.Is(err, boom) || !errors.Is(err, errUndone) {
							t.Fatalf("error %v", err)
						}
						wait = time.Until(held.until)
						if p.held("c", time.Now()) == nil || p.held("c", held.until) != nil {
							t.Error("it is not held as long as it says")
						}
					}
					if wait != want {
						t.Errorf("failure %d: a wait of %v, want %v", i+1, wait, want)
					}
					time.Sleep(wait)
				}
			})
		})
	}
}

// A removal is believed once; what is there again is an error, and no more is
// remembered than there is room for.
func TestRemovalsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRuns()
		look := func() *observed.Pod {
			return &observed.Pod{UID: "u", ObservedAt: time.Now(), Sandboxes: []observed.Sandbox{{ID: "s"}}, Containers: []observed.Container{{ID: "c"}}}
		}
		if err := p.goes(look(), time.Now()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := p.goes(look(), time.Now()); err == nil {
			t.Error("what was removed is there, and nobody says so")
		}
		time.Sleep(removedFor + time.Second)
		if err := p.goes(&observed.Pod{UID: "v", ObservedAt: time.Now()}, time.Now()); err != nil || len(p.removed.at) != 0 {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
		many := &observed.Pod{UID: "w", ObservedAt: time.Now(), Containers: make([]observed.Container, 2*removedMost)}
		for i := range many.Containers {
			many.Containers[i].ID = string(rune('a'+i%26)) + time.Duration(i).String()
		}
		if err := p.goes(many, time.Now()); err != nil || len(p.removed.at) > removedMost {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
	})
}

// deaf is a runtime that says to do what it does not.
type deaf struct {
	*memory
	stops  bool // to stop a container
	starts bool // to start one: it stays created
	loses  bool // to start one: it is not there afterwards
}

func (d *deaf) StopContainer(ctx context.Context, id string, grace int64) error {
	if !d.stops {
		return d.memory.StopContainer(ctx, id, grace)
	}
	return d.do(ctx, "StopContainer", func() error { return nil })
}

func (d *deaf) StartContainer(ctx context.Context, id string) error {
	switch {
	case d.loses:
		_ = d.RemoveContainer(ctx, id)
	case !d.starts:
		return d.memory.StartContainer(ctx, id)
	}
	return d.do(ctx, "StartContainer", func() error { return nil })
}

// However a runtime contradicts itself, and however often its pod is looked at, it is asked for
// the same a few times a minute at first, and then once a minute.
func TestRuntimeThatContradictsItself(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    deaf
		call string
	}{
		{"it stops nothing", deaf{stops: true}, "StopContainer"},
		{"it starts nothing", deaf{starts: true}, "StartContainer"},
		{"it loses what it started", deaf{loses: true}, "StartContainer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
				m := manager(t, r)
				d := tc.d
				d.memory = r
				m.rt = &d
				req := request(t, w, nil)
				for i := range 1200 { // a look each second
					req.Observed = r.look()
					req.Observed.UID, req.Observed.ObservedAt = w.pod.UID, time.Now()
					if d.stops && i == 1 {
						w.pod.Spec.Containers[0].Image = "new" // it has to end
					}
					m.Sync(t.Context(), req)
					time.Sleep(time.Second)
				}
				if n := r.calls[tc.call]; n < 10 || n > 30 {
					t.Errorf("%d calls of %s in 20 minutes, want 10 to 30", n, tc.call)
				}
			})
		})
	}
}
