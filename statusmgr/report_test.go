package statusmgr_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		sink := statusmgr.NewMemorySink(100)
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
	sink := statusmgr.NewMemorySink(100)
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
