package statusmgr

import (
	"encoding/json"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
