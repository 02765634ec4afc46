package probe_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/probe"
)

// Whatever happens in whatever order: what is told is true of the container
// that lives, results of others land nowhere, and in the end nothing is left.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { anyOrder(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func anyOrder(t *testing.T, rnd *rand.Rand) {
	reg := prometheus.NewRegistry()
	d := &checkpointtest.Disk{}
	r := newRig(t, probe.Config{Metrics: reg, Journal: d, Parallel: 3, ParallelExec: 2, FastStart: rnd.IntN(2) == 0})
	c := v1.Container{Name: "a", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
	c.StartupProbe.FailureThreshold = 2
	c.LivenessProbe.SuccessThreshold = 1
	words := []string{"start", "ready", "live", "hang", "error"}
	pods := map[types.UID]*v1.Pod{}
	live := map[types.UID]string{} // the container that runs; "" if none does
	dead := map[string]bool{}
	next := 0
	for range 200 {
		uid := types.UID(fmt.Sprint(rnd.IntN(3)))
		pod := pods[uid]
		if pod == nil {
			pod = podOf(c)
			pod.UID = uid
			pods[uid] = pod
		}
		was := live[uid]
		switch what := rnd.IntN(12); {
		case what < 3: // another container
			next++
			if was != "" {
				dead[was] = true
			}
			live[uid] = fmt.Sprint("c", next)
			r.Observe(pod, running("a", live[uid]))
		case what < 4:
			if was != "" {
				r.Observe(pod, shows(observed.Exited, "a", was))
				dead[was], live[uid] = true, ""
			}
		case what < 5:
			r.Remove(uid)
			if was != "" {
				dead[was], live[uid] = true, ""
			}
		case what < 6:
			r.Observe(pod, nil)
		case what < 7: // an edit
			pod = pod.DeepCopy()
			pod.Spec.Containers[0].ReadinessProbe.Exec.Command[0] = words[rnd.IntN(len(words))]
			pods[uid] = pod
			if was != "" {
				r.Observe(pod, running("a", was))
			}
		case what < 9:
			r.runtime.say(words[rnd.IntN(3)], []error{nil, exitError(1)}[rnd.IntN(2)])
		default:
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		}
		r.mu.Lock()
		told := len(r.changes)
		r.mu.Unlock()
		// What is told from here on is about none that is dead by now, but for
		// what was on its way already.
		r.wait(0)
		r.mu.Lock()
		for _, change := range r.changes[told:] {
			var id, typ, res string
			fmt.Sscan(change, &id, &typ, &res)
			if dead[id] && live[uid] != id {
				t.Errorf("told of a dead container: %s", change)
			}
		}
		r.mu.Unlock()
		for id := range dead {
			if got, known := r.Result(probe.Readiness, id); known && got == probe.Success {
				t.Errorf("dead container %s is ready", id)
			}
		}
		for _, id := range live {
			if id == "" {
				continue
			}
			if _, known := r.Result(probe.Readiness, id); !known {
				t.Errorf("nothing is known of %s, which runs", id)
			}
			if r.Ready(id) && !r.Started(id) {
				t.Errorf("%s is ready and has not started", id)
			}
		}
	}
	r.Retain(func(types.UID) bool { return false })
	r.wait(time.Minute)
	calls := len(r.runtime.calls)
	r.wait(time.Minute)
	if n := len(r.runtime.calls); n != calls {
		t.Errorf("%d checks with no pod left", n-calls)
	}
	if s := seriesOf(t, reg); len(s) > 0 {
		t.Errorf("series left: %v", s)
	}
	if keys, _ := d.Keys(); len(keys) > 0 {
		t.Errorf("files left: %v", keys)
	}
	r.stop()
}

// After a kill at any moment the next process shows nothing but what was shown
// last: no result that was told is forgotten, as long as it is within budget.
func TestKilledAnywhere(t *testing.T) {
	for seed := range uint64(40) {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			d := &checkpointtest.Disk{}
			d.Fault(checkpointtest.Slow(time.Duration(rnd.IntN(50))*time.Millisecond, "write"))
			r := newRig(t, probe.Config{Journal: d})
			pod := podOf(v1.Container{Name: "a", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready")})
			r.fresh(pod, "a", "c1")
			for range rnd.IntN(6) {
				r.runtime.say("ready", []error{nil, exitError(1)}[rnd.IntN(2)])
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			}
			time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			// What happens at this very moment is over: a result whose write has
			// ended is shown.
			r.wait(0)
			shown := map[probe.Type]probe.Result{}
			for _, typ := range allTypes[:2] {
				shown[typ], _ = r.Result(typ, "c1")
			}
			copied := d.Clone()
			copied.Fault(checkpointtest.Slow(time.Second, "write")) // what the next process finds out itself shows later
			r.stop()
			r = newRig(t, probe.Config{Journal: copied})
			r.Observe(pod, running("a", "c1"))
			for _, typ := range allTypes[:2] {
				// Unknown says that what was shown before stays, which only the
				// initial values may.
				got, _ := r.Result(typ, "c1")
				if got != shown[typ] && !(got == probe.Unknown && shown[typ] == initial[typ]) {
					t.Errorf("seed %d: %s was shown as %s, and is %s after a crash", seed, typ, shown[typ], got)
				}
			}
			r.stop()
		})
	}
}
