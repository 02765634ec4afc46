package kubeapi

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (r *recent[K, V]) len() int { return len(r.young) + len(r.old) }

func TestRecentKeepsWhatIsAskedFor(t *testing.T) {
	r := newRecent[int, string](10)
	r.put(0, "often")
	for i := 1; i < 1000; i++ {
		r.put(i, fmt.Sprint(i))
		if v, ok := r.get(0); !ok || v != "often" {
			t.Fatalf("after %d others: %q, %t", i, v, ok)
		}
		if _, ok := r.get(max(1, i-4)); !ok {
			t.Fatalf("one of the last 5 is forgotten after %d", i)
		}
		if r.len() > 20 {
			t.Fatalf("%d are kept", r.len())
		}
	}
	r.drop(func(string) bool { return true })
	if r.len() != 0 {
		t.Errorf("%d are left", r.len())
	}
}

// However many pods come and go, what is remembered of their events is bounded,
// and those of one that goes on are counted none the less.
func TestEventsOfManyPodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewEventRecorder(EventConfig{Client: struct{ EventClient }{}, NodeName: "n", Kept: 100})
		if err != nil {
			t.Fatal(err)
		}
		pod := func(uid string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: uid, UID: types.UID(uid)}}
		}
		for i := range 5000 {
			for _, reason := range []string{"Pulled", "Created", "Started", "Killing"} {
				r.Event(pod(fmt.Sprint("u", i)), v1.EventTypeNormal, reason, fmt.Sprintf("%s %d", reason, i))
			}
			r.Event(pod("stays"), v1.EventTypeWarning, "Failed", fmt.Sprint("attempt ", i))
			time.Sleep(time.Millisecond)
		}
		if r.spam.len() > 200 || r.similar.len() > 200 || len(r.series) > 100 {
			t.Errorf("%d limits, %d messages and %d series are kept", r.spam.len(), r.similar.len(), len(r.series))
		}
		if c := r.Counts(); c.Combined < 4900 || c.Silenced < 4900 {
			t.Errorf("of 5000 events of one pod %d were combined and %d silenced", c.Combined, c.Silenced)
		}
	})
}
