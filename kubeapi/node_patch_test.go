package kubeapi

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPatch(t *testing.T) {
	t0 := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	t1 := metav1.NewTime(t0.Add(time.Minute))
	addr := func(kind v1.NodeAddressType, a string) v1.NodeAddress { return v1.NodeAddress{Type: kind, Address: a} }
	cond := func(kind v1.NodeConditionType, reason string, beat metav1.Time) v1.NodeCondition {
		return v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Reason: reason, LastHeartbeatTime: beat, LastTransitionTime: t0}
	}
	for _, tc := range []struct {
		name      string
		old, want v1.Node
		patch     string
	}{
		{"nothing", v1.Node{}, v1.Node{}, `{}`},
		{"spec is nobody's here", v1.Node{}, v1.Node{Spec: v1.NodeSpec{Unschedulable: true, PodCIDR: "x"}}, `{}`},
		{"names and versions are not either", v1.Node{}, v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Finalizers: []string{"x"}}}, `{}`},
		{"labels", v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "1", "gone": "x", "kept": "y"}}},
			v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "2", "kept": "y", "new": ""}}},
			`{"metadata":{"labels":{"a":"2","gone":null,"new":""}}}`},
		{"annotations", v1.Node{}, v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "1"}}},
			`{"metadata":{"annotations":{"a":"1"}}}`},
		{"the last annotation", v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "1"}}}, v1.Node{},
			`{"metadata":{"annotations":null}}`},
		{"capacity", v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{"cpu": resource.MustParse("1"), "x": resource.MustParse("1")}}},
			v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{"cpu": resource.MustParse("2")}}},
			`{"status":{"capacity":{"cpu":"2","x":null}}}`},
		{"heartbeat", v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("Ready", "R", t0), cond("Other", "O", t0)}}},
			v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("Ready", "R", t1), cond("Other", "O", t0)}}},
			`{"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T00:01:00Z","type":"Ready"}]}}`},
		{"a new condition", v1.Node{},
			v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("Ready", "R", t0)}}},
			`{"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","status":"True","type":"Ready"}]}}`},
		{"no reason any more", v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("Ready", "R", t0)}}},
			v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("Ready", "", t0)}}},
			`{"status":{"conditions":[{"reason":null,"type":"Ready"}]}}`},
		{"a condition less", v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{cond("A", "", t0)}}}, v1.Node{},
			`{"status":{"conditions":[{"$patch":"delete","type":"A"}]}}`},
		{"first addresses", v1.Node{}, v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{addr("InternalIP", "1.1.1.1")}}},
			`{"status":{"addresses":[{"address":"1.1.1.1","type":"InternalIP"}]}}`},
		{"two of a type", v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{addr("InternalIP", "1.1.1.1"), addr("Hostname", "h")}}},
			v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{addr("InternalIP", "1.1.1.2"), addr("InternalIP", "::1"), addr("Hostname", "h")}}},
			`{"status":{"addresses":[{"address":"1.1.1.2","type":"InternalIP"},{"address":"::1","type":"InternalIP"},{"address":"h","type":"Hostname"},{"$patch":"replace"}]}}`},
		{"no address", v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{addr("Hostname", "h")}}}, v1.Node{},
			`{"status":{"addresses":[{"$patch":"replace"}]}}`},
		{"images as a whole", v1.Node{Status: v1.NodeStatus{Images: []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}, {Names: []string{"b"}, SizeBytes: 2}}}},
			v1.Node{Status: v1.NodeStatus{Images: []v1.ContainerImage{{Names: []string{"b"}, SizeBytes: 2}}}},
			`{"status":{"images":[{"names":["b"],"sizeBytes":2}]}}`},
		{"no volumes", v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"v"}}}, v1.Node{},
			`{"status":{"volumesInUse":null}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := nodePatch(&tc.old, &tc.want)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(tc.patch), &b) != nil || !reflect.DeepEqual(a, b) {
				t.Errorf("got  %s\nwant %s", got, tc.patch)
			}
		})
	}
}
