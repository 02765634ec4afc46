package statusmgr_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/statusmgr"
)

// guessed is how others see a pod, where that is only remembered.
func guessed(p *v1.Pod, st v1.PodStatus) statusmgr.Report {
	return statusmgr.Report{Status: st, Shown: statusmgr.Shown{Object: p, By: podlife.Remembered}}
}

// A status that is a guess is seen here alone, with what probes find out, until one is
// confirmed; and the times of that continue those of the API's object, also if it is the same one.
func TestGuessesAreNotPublished(t *testing.T) {
	since := metav1.NewTime(time.Unix(1000, 0))
	for _, guess := range []bool{true, false} {
		sink := newMemorySink(100)
		run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
			p := newPod("p")
			p.Spec.Containers = []v1.Container{{Name: "c"}}
			ready := func(yes bool, at time.Time) v1.PodStatus {
				st := status(v1.PodRunning)
				st.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "x://1", Ready: yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
				podstatus.SetReadiness(p, &st, at)
				return st
			}
			p.Status = ready(true, since.Time)
			m.Show(p, guessed(p, ready(guess, time.Now())))
			if r, _ := m.Last("p"); r.Shown.By != podlife.Remembered || r.Status.ContainerStatuses[0].Ready != guess {
				t.Errorf("shown %v, as %+v", r.Shown.By, r.Status.ContainerStatuses[0])
			}
			m.SetReady("p", "1", !guess)
			m.SetReady("p", "1", guess)
			m.Republish("p", guessed(p, p.Status).Shown)
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := told(sink); got != "" {
				t.Fatalf("sink was told %q while the status is a guess", got)
			}
			m.Set(p, ready(true, time.Now()))
			synctest.Wait()
			if got := told(sink); got != "p Running" {
				t.Fatalf("sink was told %q", got)
			}
			for _, c := range sink.History()[0].Pod.Status.Conditions {
				if c.Type == v1.PodReady && !c.LastTransitionTime.Equal(&since) {
					t.Errorf("ready since %v, want %v", c.LastTransitionTime, since)
				}
			}
		})
	}
}

// A write that was due before a status is a guess has what was due; a guess that comes while
// the pod waits for its turn is not written.
func TestAGuessBeforeItsTurn(t *testing.T) {
	sink := newMemorySink(100)
	synctest.Test(t, func(t *testing.T) {
		m, err := statusmgr.New(statusmgr.Config{Sink: sink})
		if err != nil {
			t.Fatal(err)
		}
		m.Set(newPod("p"), status(v1.PodPending))
		m.Show(newPod("p"), guessed(newPod("p"), status(v1.PodRunning)))
		done := make(chan error, 1)
		go func() { done <- m.Run(t.Context()) }()
		synctest.Wait()
		if got := told(sink); got != "" {
			t.Errorf("sink was told %q", got)
		}
		m.Set(newPod("p"), status(v1.PodRunning))
		synctest.Wait()
		if got := told(sink); got != "p Running" {
			t.Errorf("sink was told %q, want the status once", got)
		}
	})
}

// A status of an earlier life that comes late is ignored, and what the disk has of an earlier life is no
// past of this one.
func TestLives(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	of := func(life uint32, st v1.PodStatus) statusmgr.Report {
		return statusmgr.Report{Status: st, Life: life, Shown: statusmgr.Itself(newPod("p")), Runs: observed.No}
	}
	var left *checkpointtest.Disk
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		m.Show(newPod("p"), of(2, status(v1.PodRunning)))
		if m.Show(newPod("p"), of(1, terminated(v1.PodFailed, 1))) {
			t.Error("a late status is news")
		}
		synctest.Wait()
		if got := told(sink); got != "p Running" {
			t.Errorf("sink was told %q", got)
		}
		sink.FailWith(always(errors.New("down")))
		m.Show(newPod("p"), of(2, terminated(v1.PodFailed, 1)))
		synctest.Wait()
		left = store.Clone()
	})
	for _, life := range []uint32{2, 3} {
		run(t, statusmgr.Config{Store: left.Clone()}, func(m *statusmgr.Manager) {
			if r, _ := m.Last("p"); r.Life != 2 {
				t.Errorf("restored life %d, want 2", r.Life)
			}
			m.Show(newPod("p"), of(life, status(v1.PodRunning)))
			want := map[uint32]v1.PodPhase{2: v1.PodFailed, 3: v1.PodRunning}[life]
			if ph, _ := m.Phase("p"); ph != want {
				t.Errorf("in life %d it is %s, want %s", life, ph, want)
			}
		})
	}
}

// The stored end of a static pod is not published before the pod is shown again: another life of it may
// run by now. That of any other pod is.
func TestAStoredEndOfAStaticPodWaits(t *testing.T) {
	for source, want := range map[string]string{"file": "", "api": "p Failed"} {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		var left *checkpointtest.Disk
		run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
			sink.FailWith(always(errors.New("down")))
			p := newPod("p")
			p.Annotations = map[string]string{"kubernetes.io/config.source": source}
			m.Set(p, terminated(v1.PodFailed, 1))
			synctest.Wait()
			left = store.Clone()
		})
		sink = newMemorySink(10)
		run(t, statusmgr.Config{Sink: sink, Store: left}, func(*statusmgr.Manager) {
			time.Sleep(time.Hour)
			if got := told(sink); got != want {
				t.Errorf("source %s: sink was told %q, want %q", source, got, want)
			}
		})
	}
}
