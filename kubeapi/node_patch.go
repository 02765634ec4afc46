package kubeapi

import (
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/strategicpatch"
)

// nodePatch returns a strategic merge patch that changes old's labels, annotations and status to
// those of want. If they are equal, it returns "{}". Other fields of want are ignored: the agent
// does not own them.
//
// The server merges conditions by type, so that conditions of other writers stay. It
// would merge addresses by type as well, although a Node may have two of one type:
// the patch has all addresses, with a directive to replace the list
// (https://github.com/kubernetes/kubernetes/issues/44788).
func nodePatch(old, want *v1.Node) ([]byte, error) {
	old, want = differing(old, want)
	before, err := strategicpatch.Object(old)
	if err != nil {
		return nil, fmt.Errorf("compute patch of the Node: %w", err)
	}
	after, err := strategicpatch.Object(want)
	if err != nil {
		return nil, fmt.Errorf("compute patch of the Node: %w", err)
	}
	patch := map[string]any{}
	if meta := strategicpatch.Diff(part(before, "metadata", "labels", "annotations"), part(after, "metadata", "labels", "annotations")); len(meta) > 0 {
		patch["metadata"] = meta
	}
	was, is := child(before, "status"), child(after, "status")
	wasConditions, isConditions := was["conditions"], is["conditions"]
	wasAddresses, isAddresses := was["addresses"], is["addresses"]
	for _, m := range []map[string]any{was, is} {
		delete(m, "conditions")
		delete(m, "addresses")
	}
	status := strategicpatch.Diff(was, is)
	if list := strategicpatch.ByKey("type", strategicpatch.List(wasConditions), strategicpatch.List(isConditions), strategicpatch.Diff); len(list) > 0 {
		status["conditions"] = list
	}
	if !reflect.DeepEqual(wasAddresses, isAddresses) {
		list := strategicpatch.List(isAddresses)
		if wasAddresses != nil {
			list = append(list, strategicpatch.Replace(nil))
		}
		status["addresses"] = list
	}
	if len(status) > 0 {
		patch["status"] = status
	}
	out, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("compute patch of the Node: %w", err)
	}
	return out, nil
}

// differing returns copies of the two nodes without the status fields that are equal in
// both. Most reports change one or two fields, and not the list of fifty images.
func differing(old, want *v1.Node) (_, _ *v1.Node) {
	part := func(n *v1.Node) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}, Status: n.Status}
	}
	a, b := part(old), part(want)
	was, is := reflect.ValueOf(&a.Status).Elem(), reflect.ValueOf(&b.Status).Elem()
	for i := range was.NumField() {
		if reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			was.Field(i).SetZero()
			is.Field(i).SetZero()
		}
	}
	return a, b
}

func child(m map[string]any, name string) map[string]any {
	c, _ := m[name].(map[string]any)
	if c == nil {
		c = map[string]any{}
	}
	return c
}

// part returns the named fields that exist in the child map of m.
func part(m map[string]any, name string, fields ...string) map[string]any {
	all, out := child(m, name), map[string]any{}
	for _, f := range fields {
		if v, ok := all[f]; ok {
			out[f] = v
		}
	}
	return out
}
