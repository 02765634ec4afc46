package eviction_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

// The figures tell how far each signal is from its threshold, and that one was
// not read again.
func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("ordinary", 0, 500, 300)
		soft := at(rank.SignalMemory, 800)
		soft.Grace = time.Hour
		m := manager(t, n.config(at(rank.SignalNodeFs, 100), soft, at(rank.SignalMemory, 100)))
		time.Sleep(time.Second)
		synctest.Wait()
		find := func(want rank.Threshold) eviction.Figure {
			for _, f := range m.Figures() {
				if f.Threshold == want {
					return f
				}
			}
			t.Fatalf("no figure of %+v in %+v", want, m.Figures())
			return eviction.Figure{}
		}
		if f := find(soft); !f.Known || !f.Met || f.Acting || f.Observation.Available != 700*mi || f.Since.IsZero() {
			t.Errorf("soft %+v", f)
		}
		if f := find(at(rank.SignalMemory, 100)); !f.Known || f.Met || !f.Since.IsZero() {
			t.Errorf("hard %+v", f)
		}
		if f := m.Figures(); f[0].Threshold.Signal != rank.SignalMemory {
			t.Errorf("memory is not the first: %+v", f)
		}
		n.change(func() { n.statErr = errors.New("no figures") })
		time.Sleep(11 * time.Second)
		if f := find(at(rank.SignalMemory, 100)); f.Known || f.Observation.Available != 700*mi {
			t.Errorf("not read again: %+v", f)
		}
	})
}

// Who is never evicted can be said otherwise, and then may not always begin.
func TestCriticalCanBeSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		static := n.add("static", 0, 0, 450)
		static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		n.add("chosen few", 7, 0, 500)
		cfg := n.config(at(rank.SignalMemory, 100))
		cfg.Critical = func(p *v1.Pod) bool { return p.Spec.Priority != nil && *p.Spec.Priority == 7 }
		killed, m := run(t, n, time.Minute, cfg)
		wantKilled(t, killed, "static")
		if m.Admit(static) == nil {
			t.Error("a static pod is admitted as if it were critical")
		}
	})
}
