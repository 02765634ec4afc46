package probe_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/probe"
)

// restarted returns a second Manager, after a kill -9 of the first.
func (r *rig) restarted(d *checkpointtest.Disk) *rig {
	r.t.Helper()
	copied := d.Clone()
	r.stop()
	return newRig(r.t, probe.Config{Journal: copied, Exec: r.runtime})
}

func TestRestartFlipsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		c := v1.Container{Name: "a", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
		notReady := with(v1.Container{Name: "b"}, probe.Readiness, execProbe("fail"))
		pod := podOf(c, notReady)
		r.fresh(pod, "a", "c1", "b", "b1")
		r.wait(5 * sec)
		r.wantChanges("c1 Startup Success", "c1 Readiness Success")

		r = r.restarted(d)
		r.Observe(pod, nil) // nobody knows yet
		r.Observe(pod, running("a", "c1", "b", "b1"))
		r.want(probe.Startup, "c1", probe.Success)
		r.want(probe.Readiness, "c1", probe.Success)
		r.want(probe.Liveness, "c1", probe.Success)
		r.want(probe.Readiness, "b1", probe.Failure)
		r.wait(10 * sec)
		r.wantChanges()
		if n := r.runtime.count("c1 start"); n != 1 {
			t.Errorf("the startup probe of a started container ran %d times, want once in all", n)
		}
	})
}

func TestReplacedMeanwhileStartsAfresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ready")))
		r.fresh(pod, "a", "c1")
		r.wait(2 * sec)
		r = r.restarted(d)
		r.runtime.say("ready", errors.New("not yet"))
		r.Observe(pod, running("a", "c2"))
		r.want(probe.Readiness, "c2", probe.Unknown)
		r.wantUnknown(probe.Readiness, "c1")
		r.runtime.say("ready", nil)
		r.wait(sec)
		r.want(probe.Readiness, "c2", probe.Success)
	})
}

// A container that nothing is known of is Unknown, not failed, and is asked at
// once.
func TestUnknownIsNotFalse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		c := v1.Container{Name: "a", ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
		c.ReadinessProbe.InitialDelaySeconds = 60
		c.LivenessProbe.InitialDelaySeconds = 60
		obs := running("a", "c1")
		obs.Containers[0].StartedAt = time.Now().Add(-time.Hour)
		pod := podOf(c)
		r.runtime.slow(time.Millisecond)
		r.Observe(pod, obs)
		for _, typ := range allTypes[1:] {
			if got, known := r.Result(typ, "c1"); got != probe.Unknown || !known {
				t.Errorf("%s = %s, %v, want UNKNOWN and known", typ, got, known)
			}
		}
		r.wait(time.Millisecond)
		slices.Sort(r.changes) // they were asked at the same time
		r.wantChanges("c1 Liveness Success", "c1 Readiness Success")
	})
}

func TestStatusTellsWhatStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		pod := podOf(v1.Container{Name: "a", StartupProbe: execProbe("fail")})
		started := true
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", ContainerID: "containerd://c1", Started: &started}}
		r.Observe(pod, running("a", "c1"))
		r.want(probe.Startup, "c1", probe.Success)
		r.wait(10 * sec)
		r.wantChanges()
		if n := r.runtime.count("c1 fail"); n != 0 {
			t.Errorf("it was probed %d times, want 0", n)
		}
	})
}

// A journal that the disk did not take contradicts what others were told: that stays
// until the probe has been asked.
func TestStatusContradictsTheJournal(t *testing.T) {
	for _, tc := range []struct {
		shown, running bool
		says           error
		want           probe.Result
	}{
		{false, true, exitError(1), probe.Unknown},
		{true, true, nil, probe.Success},
		{false, false, nil, probe.Success}, // of before it ran
	} {
		bubble(t, func(t *testing.T) {
			d := &checkpointtest.Disk{}
			r := newRig(t, probe.Config{Journal: d})
			pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ready")))
			r.fresh(pod, "a", "c1")
			r.wait(2 * sec)
			r.wantChanges("c1 Readiness Success")
			r = r.restarted(d)
			r.runtime.say("ready", tc.says)
			r.runtime.slow(time.Millisecond)
			pod = pod.DeepCopy()
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", ContainerID: "containerd://c1", Ready: tc.shown}}
			if tc.running {
				pod.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{}
			}
			r.Observe(pod, running("a", "c1"))
			if got, _ := r.Result(probe.Readiness, "c1"); got != tc.want {
				t.Errorf("shown as ready: %v, running: %v: %s, want %s", tc.shown, tc.running, got, tc.want)
			}
			r.wait(3 * sec)
			if tc.says != nil {
				r.wantChanges("c1 Readiness Failure")
			} else {
				r.wantChanges()
			}
		})
	}
}

// What a failed probe asked for may have been done by now: it is found out
// again.
func TestFailuresThatKillAreNotRestored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Liveness, execProbe("fail")), with(v1.Container{Name: "b"}, probe.Startup, execProbe("fail")))
		r.fresh(pod, "a", "c1", "b", "b1")
		r.wait(3 * sec)
		r.want(probe.Liveness, "c1", probe.Failure)
		r.want(probe.Startup, "b1", probe.Failure)
		r = r.restarted(d)
		r.runtime.say("fail", nil)
		r.runtime.slow(time.Millisecond)
		r.Observe(pod, running("a", "c1", "b", "b1"))
		if got, _ := r.Result(probe.Liveness, "c1"); got != probe.Success {
			t.Errorf("liveness = %s, want Success", got)
		}
		if got, _ := r.Result(probe.Startup, "b1"); got != probe.Unknown {
			t.Errorf("startup = %s, want Unknown", got)
		}
		r.wait(3 * sec)
		r.wantChanges("b1 Startup Success")
	})
}

// The runtime cannot tell of a container at first: what is known of it waits.
func TestUnknownStateAtFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ready")))
		r.fresh(pod, "a", "c1")
		r.wait(2 * sec)
		r = r.restarted(d)
		r.Observe(pod, shows(observed.Unknown, "a", "c1"))
		r.Observe(pod, running("a", "c1"))
		r.want(probe.Readiness, "c1", probe.Success)
		r.Observe(pod, shows(observed.Unknown, "a", "c1"))
		r.want(probe.Readiness, "c1", probe.Success)
		r.wait(5 * sec)
		r.wantChanges()
	})
}

// The wall clock may jump as it likes while an agent restarts.
func TestStartTimesOfTheWrongCentury(t *testing.T) {
	const decade = 10 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name  string
		age   time.Duration
		first time.Duration // when the first liveness check is, at the earliest and at the latest a period later
	}{
		{"just now", 0, 60 * sec},
		{"20 s ago", 20 * sec, 40 * sec},
		{"an hour ago", time.Hour, 0},
		{"ten years ago", decade, 60 * sec},
		{"in ten years", -decade, 60 * sec},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := &checkpointtest.Disk{}
				r := newRig(t, probe.Config{Journal: d})
				spec := v1.Container{Name: "a", ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
				spec.LivenessProbe.InitialDelaySeconds = 60
				spec.LivenessProbe.PeriodSeconds = 10
				pod := podOf(spec)
				r.fresh(pod, "a", "c1")
				r.wait(3 * sec)
				r = r.restarted(d)
				begin := time.Now()
				obs := running("a", "c1")
				obs.Containers[0].StartedAt = time.Now().Add(-c.age)
				r.Observe(pod, obs)
				r.wait(2 * time.Minute)
				r.wantChanges()
				for i, call := range r.runtime.calls {
					if call == "c1 live" {
						if at := r.runtime.times[i].Sub(begin); at < c.first || at > c.first+10*sec {
							t.Errorf("first liveness check after %v, want %v to %v", at, c.first, c.first+10*sec)
						}
						return
					}
				}
				t.Error("there was no liveness check")
			})
		})
	}
}

// While a pod runs, no time that the runtime shows matters any more.
func TestJumpsWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, probe.Config{})
		spec := v1.Container{Name: "a", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")}
		pod := podOf(spec)
		r.fresh(pod, "a", "c1")
		r.wait(3 * sec)
		for _, jump := range []int{10, -10, 0} {
			obs := running("a", "c1")
			obs.Containers[0].StartedAt = time.Now().AddDate(jump, 0, 0)
			obs.ObservedAt = time.Now().AddDate(jump, 0, 0)
			r.Observe(pod, obs)
			before := r.runtime.count("c1 live")
			r.wait(10 * sec)
			if n := r.runtime.count("c1 live") - before; n < 9 || n > 11 {
				t.Errorf("%d liveness checks in 10 s after a jump of %d years, want 10", n, jump)
			}
		}
		r.wantChanges("c1 Startup Success", "c1 Readiness Success")
	})
}

func TestGonePodsLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		r := newRig(t, probe.Config{Journal: d})
		pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ready")))
		other := pod.DeepCopy()
		other.UID = "2"
		d.Put("other", "") // not ours
		r.fresh(pod, "a", "c1")
		r.fresh(other, "a", "d1")
		r.wait(3 * sec)
		r = r.restarted(d)
		d = r.journal
		r.Observe(pod, running("a", "c1"))
		r.Retain(keepAll)
		r.wait(sec)
		if keys, _ := d.Keys(); len(keys) != 3 {
			t.Errorf("files: %v, want all three", keys)
		}
		r = r.restarted(d)
		d = r.journal
		r.Observe(pod, running("a", "c1"))
		r.Retain(func(uid types.UID) bool { return uid == "1" }) // 2 is known by its file only
		r.wait(sec)
		if keys, _ := d.Keys(); len(keys) != 2 {
			t.Errorf("files: %v, want those of pod 1 and of others", keys)
		}
		r.Retain(func(types.UID) bool { return false })
		r.Retain(func(types.UID) bool { return false })
		r.wait(sec)
		if keys, _ := d.Keys(); len(keys) != 1 || keys[0] != "other" {
			t.Errorf("files: %v, want only that of others", keys)
		}
		r.wantUnknown(probe.Readiness, "c1")
	})
}

// At every moment, what is shown is in the journal: also while it is slow.
func TestJournalIsNeverBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		d.Fault(checkpointtest.Slow(60*time.Millisecond, "write"))
		r := newRig(t, probe.Config{Journal: d})
		r.fresh(podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("x"))), "a", "c1")
		for i := range 1000 { // 7 s, in which it flips each second
			if i%143 == 70 {
				r.runtime.say("x", []error{nil, exitError(1)}[i/143%2])
			}
			r.wait(7 * time.Millisecond)
			shown, _ := r.Result(probe.Readiness, "c1")
			b, _ := d.Read("probe-1")
			if want := `"Readiness":"` + shown.String() + `"`; !strings.Contains(string(b), want) && (len(b) > 0 || shown != probe.Failure) {
				t.Fatalf("%s is shown, and the journal has %q", shown, b)
			}
		}
		r.stop() // in the middle of a write, perhaps
		if n := len(r.changes); n < 5 {
			t.Errorf("only %d changes", n)
		}
	})
}

// While nobody knows what others see, the journal may be older than that: the probe is asked
// at once, and what it finds counts.
func TestNobodyKnowsWhatOthersSee(t *testing.T) {
	for known, want := range map[bool]probe.Result{true: probe.Success, false: probe.Unknown} {
		bubble(t, func(t *testing.T) {
			d := &checkpointtest.Disk{}
			r := newRig(t, probe.Config{Journal: d})
			pod := podOf(with(v1.Container{Name: "a"}, probe.Readiness, execProbe("ready")))
			r.fresh(pod, "a", "c1")
			r.wait(2 * sec)
			copied := d.Clone()
			r.stop()
			r = newRig(t, probe.Config{Journal: copied, Exec: r.runtime, Published: func(p *v1.Pod) (*v1.PodStatus, bool) { return &p.Status, known }})
			r.runtime.slow(time.Millisecond)
			r.Observe(pod, running("a", "c1", "b", "b1"))
			if got, _ := r.Result(probe.Readiness, "c1"); got != want || r.Unsure("c1") != (want == probe.Unknown) {
				t.Errorf("known %t: %s, unsure %t", known, got, r.Unsure("c1"))
			}
			r.wait(2 * sec)
			r.want(probe.Readiness, "c1", probe.Success)
			if r.Unsure("c1") || r.Unsure("b1") || r.Unsure("") {
				t.Error("unsure after a check, or of what has no probe")
			}
			// What begins under the eyes of this process is not ready yet, which is no guess.
			r.Observe(pod, running("a", "c2"))
			if r.Unsure("c2") {
				t.Error("unsure of a new container")
			}
		})
	}
}
