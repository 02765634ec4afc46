package statusmgr_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/statusmgr"
)

// A mirror that is replaced while the status is written to the old one gets it
// as well.
func TestMirrorIsReplacedDuringAWrite(t *testing.T) {
	sink, as := newMemorySink(10), &mirrors{}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		as.set("p", mirror("m1"))
		m.Show(p, as.report(p, status(v1.PodPending)))
		synctest.Wait()
		sink.DelayBy(take(time.Second))
		m.Show(p, as.report(p, status(v1.PodRunning)))
		time.Sleep(time.Millisecond)
		as.set("p", mirror("m2"))
		m.Republish("p", as.shown(p))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := told(sink); got != "m1 Pending, m1 Running, m2 Running" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// A sink that finds a pod gone and then finds it after all deletes it.
func TestGonePodsThatComeBackAreDeleted(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		sink.FailWith(always(statusmgr.ErrGone))
		p := newPod("p")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		m.Set(p, status(v1.PodPending))
		synctest.Wait()
		sink.FailWith(nil)
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		synctest.Wait()
		if got := told(sink); got != "p Running, p Failed, p deleted" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// A pod that was over before its deletion was requested has left what goes with it alone: it
// is deleted when it is over once more.
func TestDeletionAfterTheEndWaits(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		synctest.Wait()
		p = p.DeepCopy()
		now := metav1.Now()
		p.DeletionTimestamp = &now
		m.Set(p, status(v1.PodFailed))
		synctest.Wait()
		if got := told(sink); strings.Contains(got, "deleted") {
			t.Errorf("sink was told %q before all was gone", got)
		}
		m.Terminate(p)
		synctest.Wait()
		if got := told(sink); !strings.HasSuffix(got, "p deleted") {
			t.Errorf("sink was told %q", got)
		}
	})
}

// A pod that is over is deleted when its deletion is requested, though its
// status does not change.
func TestReconcileSeesRequestedDeletions(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		synctest.Wait()
		p = p.DeepCopy()
		now := metav1.Now()
		p.DeletionTimestamp = &now
		p.Status, _ = m.Get("p")
		if m.Reconcile(p, statusmgr.Itself(p)) {
			t.Error("the status was changed")
		}
		synctest.Wait()
		if got := told(sink); got != "p Running, p Failed, p deleted" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// Reconcile publishes to an object that the last write did not find.
func TestReconcileFindsTheMirror(t *testing.T) {
	sink, as := newMemorySink(10), &mirrors{}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p, api := newPod("p"), mirror("m")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		api.Status.Phase = v1.PodPending
		as.set("p", api)
		ends := as.report(p, terminated(v1.PodFailed, 1))
		ends.Runs = observed.Maybe
		m.Show(p, ends)
		synctest.Wait()
		as.set("p", nil)
		m.Show(p, as.report(p, *ends.Status.DeepCopy()))
		time.Sleep(time.Minute)
		as.set("p", api)
		m.Reconcile(p, as.shown(p))
		synctest.Wait()
		if got := told(sink); got != "m Pending, m Failed" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// slowDisk takes a second for each value.
func slowDisk() *checkpointtest.Disk {
	d := &checkpointtest.Disk{}
	d.Fault(checkpointtest.Slow(time.Second, "write"))
	return d
}

// A pod's containers stop while its status waits for the disk: what is published with the
// terminal phase shows them as stopped, and not as running.
func TestAPhaseIsThatOfItsContainers(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: slowDisk()}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		time.Sleep(time.Minute)
		// Its end has begun, as with an eviction.
		m.Show(p, statusmgr.Report{Status: status(v1.PodFailed), Shown: statusmgr.Itself(p), Runs: observed.Yes})
		time.Sleep(time.Second / 2)
		m.Set(p, terminated(v1.PodFailed, 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, w := range sink.History() {
			if st := w.Pod.Status; st.Phase == v1.PodFailed && st.ContainerStatuses[0].State.Terminated == nil {
				t.Errorf("published as %s with %+v", st.Phase, st.ContainerStatuses[0].State)
			}
		}
		if got := told(sink); got != "p Running, p Failed" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// A phase that was withheld goes before the bulk.
func TestWithheldPhasesGoFirst(t *testing.T) {
	sink := newMemorySink(100)
	run(t, statusmgr.Config{Sink: sink, Parallel: 1}, func(m *statusmgr.Manager) {
		for i := range 10 {
			m.Set(newPod(fmt.Sprint("p", i)), readyStatus(0, false))
		}
		held := newPod("held")
		m.Show(held, statusmgr.Report{Status: terminated(v1.PodFailed, 1), Shown: statusmgr.Itself(held)})
		synctest.Wait()
		sink.DelayBy(take(time.Second))
		before, _ := sink.Counts()
		for i := range 10 {
			m.Set(newPod(fmt.Sprint("p", i)), readyStatus(1, false))
		}
		m.Set(held, terminated(v1.PodFailed, 1))
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		found := false
		for _, w := range sink.History()[before:] {
			found = found || w.Pod.Name == "held"
		}
		if !found {
			t.Error("it waits behind the bulk")
		}
	})
}

// A pod that is forgotten while it is queued is not written, and takes no slot.
func TestForgottenPodsAreNotWritten(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Parallel: 1}, func(m *statusmgr.Manager) {
		sink.DelayBy(take(time.Second))
		m.Set(newPod("first"), status(v1.PodRunning))
		m.Set(newPod("forgotten"), status(v1.PodRunning))
		m.Set(newPod("last"), status(v1.PodRunning))
		m.Forget("forgotten")
		m.Forget("unknown")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := told(sink); got != "first Running, last Running" {
			t.Errorf("sink was told %q", got)
		}
		if _, ok := m.Phase("forgotten"); ok {
			t.Error("it is still known")
		}
	})
}

// The end of a pod that begins anew while that end waits for the disk is not published any more.
func TestEndsOfEarlierLivesAreNotWritten(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: slowDisk()}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		time.Sleep(time.Minute)
		m.Set(p, terminated(v1.PodFailed, 1))
		time.Sleep(time.Second / 2)
		m.Forget("p")
		m.Set(p, status(v1.PodPending))
		time.Sleep(time.Minute)
		if got := told(sink); got != "p Running, p Pending" {
			t.Errorf("sink was told %q", got)
		}
	})
}
