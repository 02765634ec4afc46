package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
)

func podOf(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
}

// Events survive a restart, and their counts go on.
func TestKeepContinuesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		store.Put("pod-bad", "{")
		store.Put("pod-new", `{"version":2,"events":[{}]}`)
		run := func(do func(*EventLog)) *EventLog {
			l := NewEventLog(zap.NewNop(), "n1", nil, nil)
			stop := testrun.Start(t, func(ctx context.Context) error { return l.Keep(ctx, store) })
			synctest.Wait()
			do(l)
			synctest.Wait()
			stop()
			return l
		}
		run(func(l *EventLog) {
			l.Event(podOf("a"), "Warning", "Failed", "x")
			l.ContainerEvent(podOf("a"), "c", "Warning", "Failed", "x")
			l.Node("Normal", "Ready", "y")
			time.Sleep(storeDelay + time.Second)
			synctest.Wait()
			if n := store.Count("write"); n != 2 {
				t.Errorf("%d writes after the delay, want one for the pod and one for the node", n)
			}
			l.Event(podOf("a"), "Warning", "Failed", "x")
			l.Node("Normal", "Ready", "y")
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := store.Count("write"); n != 2 {
				t.Errorf("%d writes after repetitions, want no more than before", n)
			}
		})
		l := run(func(l *EventLog) { l.Event(podOf("a"), "Warning", "Failed", "x") })
		var got []string
		for _, e := range l.All() {
			got = append(got, fmt.Sprintf("%s/%s %s x%d", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Count))
		}
		slices.Sort(got)
		if want := []string{"/n1 Ready x2", "shop/a Failed x1", "shop/a Failed x3"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// The events of a pod that is gone last for an hour, also over a restart, and those of too many
// such pods do not.
func TestEventsOutliveTheirPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := NewEventLog(zap.NewNop(), "n1", nil, nil)
		none := func(types.UID) bool { return false }
		l.Event(podOf("a"), "Warning", "Failed", "x")
		time.Sleep(lasts - time.Minute)
		l.store(store)
		l.Retain(none)
		if n := len(l.Of("a")); n != 1 || len(store.Values()) != 1 {
			t.Errorf("%d events after 59 minutes, want 1; stored: %q", n, store.Values())
		}
		time.Sleep(2 * time.Minute)
		l.Retain(none)
		l.store(store)
		if n := len(l.Of("a")); n != 0 || len(store.Values()) != 0 {
			t.Errorf("%d events after more than an hour, want none; stored: %q", n, store.Values())
		}
		for i := range maxGone + 5 {
			time.Sleep(time.Second)
			l.Event(podOf(fmt.Sprint(i)), "Warning", "Failed", "x")
		}
		l.Retain(none)
		if n := len(l.All()); n != maxGone || len(l.Of("4")) > 0 || len(l.Of("5")) == 0 {
			t.Errorf("%d events of pods that are gone, want the %d newest", n, maxGone)
		}
	})
}

// A store that fails costs no event of this process.
func TestKeepOutlivesItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewEventLog(zap.NewNop(), "n1", nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		store := &checkpointtest.Disk{}
		store.Fault(checkpointtest.Fail(errors.New("no disk")))
		go func() { done <- l.Keep(ctx, store) }()
		l.Event(podOf("a"), "Warning", "Failed", "x")
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil || len(l.Of("a")) != 1 {
			t.Errorf("error %v, events %v", err, l.Of("a"))
		}
	})
}
