package statusmgr

import (
	"encoding/json"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podlife"
)

// What is stored is what identifies the pod, what publication goes by, and the
// status.
func TestRecordsAreReadBack(t *testing.T) {
	now := metav1.Now().Rfc3339Copy()
	grace := int64(30)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"a": "b"}, DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace,
		Annotations:   map[string]string{"kubernetes.io/config.source": "file", "kubectl.kubernetes.io/last-applied-configuration": "long"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	want := recordOf(&entry{pod: pod, status: &v1.PodStatus{Phase: v1.PodFailed, StartTime: &now}, finished: true})
	if len(want.Meta.Annotations) != 1 || want.Meta.ManagedFields != nil || len(pod.Annotations) != 2 {
		t.Errorf("stored %+v", want.Meta)
	}
	value, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseRecord("u", value)
	if err != nil || !reflect.DeepEqual(got.Meta.Labels, want.Meta.Labels) || !got.Finished || got.Status.Phase != v1.PodFailed ||
		!got.Status.StartTime.Equal(&now) || !got.Meta.DeletionTimestamp.Equal(&now) || got.Meta.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := parseRecord("other", value); err == nil {
		t.Error("a record of another pod was taken")
	}
}

// The cause of an end outlasts a restart. Of a record of an earlier build it is read from the status.
func TestCausesAreReadBack(t *testing.T) {
	grace := int64(3)
	rejected := podlife.Cause{Kind: podlife.Rejected, Reason: "OutOfcpu", Message: "no cpu"}
	for _, tc := range []struct {
		name  string
		phase v1.PodPhase
		give  podlife.Cause
		early bool // the record of a build that had no causes
		want  podlife.Cause
	}{
		{"rejected", v1.PodFailed, rejected, false, rejected},
		{"rejected, of an earlier build", v1.PodFailed, rejected, true, rejected},
		{"evicted with its own time", v1.PodFailed, podlife.Cause{Kind: podlife.OverLimit, Grace: &grace}, false, podlife.Cause{Kind: podlife.OverLimit, Grace: &grace}},
		{"for a shutdown, of an earlier build", v1.PodFailed, podlife.Cause{Kind: podlife.Shutdown, Reason: "Terminated"}, true, podlife.Cause{Kind: podlife.Shutdown, Reason: "Terminated"}},
		{"of an embedder's own", v1.PodFailed, podlife.Cause{Reason: "Moved"}, false, podlife.Cause{Reason: "Moved"}},
		{"it had succeeded", v1.PodSucceeded, podlife.Cause{Kind: podlife.Shutdown}, false, podlife.Cause{}},
		{"none", v1.PodRunning, podlife.Cause{}, false, podlife.Cause{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Report{Status: v1.PodStatus{Phase: tc.phase}, Why: tc.give}
			if tc.early {
				tc.give.Apply(&r.Status)
			}
			e := &entry{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}, status: &r.Status, why: r.cause()}
			rec := recordOf(e)
			if tc.early {
				rec.Cause = nil
			}
			value, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseRecord("u", value)
			if why := got.why(); err != nil || why.Kind != tc.want.Kind || why.Reason != tc.want.Reason || (why.Grace == nil) != (tc.want.Grace == nil) {
				t.Errorf("read %+v, %v; want %+v", why, err, tc.want)
			}
		})
	}
}

// Whatever is read, it is a pod of that UID, or an error.
func FuzzParseRecord(f *testing.F) {
	f.Add("u", []byte(`{"finished":true,"metadata":{"name":"p","uid":"u"},"status":{"phase":"Failed"}}`))
	f.Add("u", []byte("null"))
	f.Add("", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if r, err := parseRecord(key, value); err == nil && (string(r.Meta.UID) != key || r.Meta.Name == "") {
			t.Errorf("record %+v under %q", r, key)
		}
	})
}
