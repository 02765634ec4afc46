package eviction_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
)

// A signal of one's own frees what no pod needs first, then evicts by priority and use, has a
// condition and a taint, and keeps pods out; a figure that cannot be read changes nothing.
func TestOwnSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("high", 10, 0, 1)
		n.add("low", 0, 0, 1)
		n.add("lower", 0, 0, 1)
		left, reclaimed, fail := int64(50), 0, error(nil)
		cfg := eviction.Config{
			Stats: n, Pods: n.list,
			Kill: func(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
				defer n.change(func() { left = 50 })
				return n.kill(ctx, pod, why)
			},
			Thresholds: []rank.Threshold{{Signal: "seats.free", Value: rank.Amount{Value: 10}}},
			Signals: []eviction.Signal{{
				Name: "seats.free", Condition: "SeatPressure",
				Read: func(context.Context) (rank.Observation, error) {
					n.mu.Lock()
					defer n.mu.Unlock()
					return rank.Observation{Available: left, Capacity: 50, Time: time.Now()}, fail
				},
				Usage: func(context.Context, []*v1.Pod) (map[types.UID]int64, error) {
					return map[types.UID]int64{"high": 30, "low": 5, "lower": 6}, nil
				},
				Reclaim: func(context.Context) error {
					n.change(func() { reclaimed++; left += 2 })
					return nil
				},
			}},
		}
		m, err := eviction.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		time.Sleep(time.Minute)
		if m.UnderPressure("SeatPressure") || m.Admit(&v1.Pod{}) != nil {
			t.Error("under pressure at 50 of 50")
		}
		n.change(func() { left, fail = 0, errors.New("no answer") })
		time.Sleep(time.Minute)
		if m.UnderPressure("SeatPressure") {
			t.Error("under pressure without figures")
		}
		n.change(func() { left, fail = 4, nil })
		time.Sleep(20 * time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if reclaimed != 1 || len(n.killed) != 1 || !strings.HasSuffix(n.killed[0], "lower") {
			t.Errorf("reclaimed %d times, evicted %v", reclaimed, n.killed)
		}
		if r := m.Admit(&v1.Pod{}); r == nil || !strings.Contains(r.Message, "SeatPressure") {
			t.Errorf("admission %v", r)
		}
		if f := m.Figures(); len(f) != 1 || f[0].Observation.Available != 50 {
			t.Errorf("figures %+v", f)
		}
	})
}

func TestOwnSignalsAreChecked(t *testing.T) {
	n := newNode()
	read := func(context.Context) (rank.Observation, error) { return rank.Observation{}, nil }
	_, err := eviction.New(eviction.Config{
		Stats: n, Pods: n.list, Kill: n.kill,
		Thresholds: []rank.Threshold{{Signal: "a"}, {Signal: "b", Value: rank.Amount{Value: 1}}},
		Signals: []eviction.Signal{
			{Name: "a", Condition: "A", Read: read}, {Name: "a", Condition: "A", Read: read}, {Name: rank.SignalPIDs, Condition: v1.NodePIDPressure},
		},
	})
	for _, want := range []string{`Signals[1].Name is "a"`, `Signals[1].Condition is "A"`, `Signals[2].Name is "pid.available"`, `Signals[2].Condition is "PIDPressure"`, "Signals[2].Read", `Thresholds[1].Signal is "b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "Signals[0]") {
		t.Error(err)
	}
}
