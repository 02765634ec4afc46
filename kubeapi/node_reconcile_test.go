package kubeapi

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func resources(text string) v1.ResourceList {
	if text == "" {
		return nil
	}
	out := v1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func pairs(text string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(text) {
		name, v, _ := strings.Cut(f, "=")
		out[name] = v
	}
	return out
}

func TestReconcileLabels(t *testing.T) {
	const zone, os = v1.LabelTopologyZone, v1.LabelOSStable
	for _, tc := range []struct {
		name, have, fresh, want string
		changed                 bool
	}{
		{"equal", zone + "=a", zone + "=a", zone + "=a", false},
		{"missing", "", zone + "=a " + os + "=linux", zone + "=a " + os + "=linux", true},
		{"changed", zone + "=a", zone + "=b", zone + "=b", true},
		{"emptied", zone + "=a", zone + "=", "", true},
		{"empty and not there", "", zone + "=", "", false},
		{"not known here", zone + "=a", "", zone + "=a", false},
		{"others stay", "x=1 " + zone + "=a", "x=2 y=1 " + zone + "=b", "x=1 " + zone + "=b", true},
		{"others alone", "x=1", "x=2 y=1", "x=1", false},
	} {
		have := &v1.Node{}
		if have.Labels = pairs(tc.have); tc.have == "" {
			have.Labels = nil
		}
		fresh := &v1.Node{}
		fresh.Labels = pairs(tc.fresh)
		if got := reconcileNode(have, fresh, false); got != tc.changed || !equality.Semantic.DeepEqual(have.Labels, pairs(tc.want)) {
			t.Errorf("%s: %t, %v", tc.name, got, have.Labels)
		}
	}
}

func TestReconcileAttach(t *testing.T) {
	for _, tc := range []struct {
		name, have, fresh string
		changed           bool
	}{
		{"neither", "", "", false}, {"both", annotationAttach + "=true", annotationAttach + "=true", false},
		{"on", "", annotationAttach + "=true", true}, {"off", annotationAttach + "=true", "", true},
		{"another value", annotationAttach + "=no", annotationAttach + "=true", true},
	} {
		have, fresh := &v1.Node{}, &v1.Node{}
		if tc.have != "" {
			have.Annotations = pairs(tc.have)
		}
		fresh.Annotations = pairs(tc.fresh)
		if got := reconcileNode(have, fresh, false); got != tc.changed || !equality.Semantic.DeepEqual(have.Annotations, fresh.Annotations) {
			t.Errorf("%s: %t, %v", tc.name, got, have.Annotations)
		}
	}
}

func TestReconcileResources(t *testing.T) {
	for _, tc := range []struct {
		name, have, fresh, want string
		freshDevices, changed   bool
	}{
		{"nothing there", "", "cpu=1", "cpu=1", false, true},
		{"something there", "cpu=2", "cpu=1", "cpu=2", false, false},
		{"neither", "", "", "", false, false},
		{"devices kept", "cpu=1 a.com/x=2", "cpu=1", "cpu=1 a.com/x=2", false, false},
		{"devices unknown", "cpu=1 a.com/x=2 b.com/y=3", "cpu=1", "cpu=1 a.com/x=0 b.com/y=0", true, true},
		{"devices unknown and none", "cpu=1 a.com/x=0", "cpu=1", "cpu=1 a.com/x=0", true, false},
		{"kubernetes' own are none", "cpu=1 kubernetes.io/batch=2 x.kubernetes.io/y=2", "cpu=1", "cpu=1 kubernetes.io/batch=2 x.kubernetes.io/y=2", true, false},
		{"new size", "cpu=1", "cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi", false, true},
		{"more of a size", "cpu=1 hugepages-2Mi=2Mi", "cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi", false, true},
		{"same", "cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi", false, false},
		{"size gone", "cpu=1 hugepages-2Mi=4Mi hugepages-1Gi=1Gi", "cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi", false, true},
		{"all gone", "cpu=1 hugepages-2Mi=4Mi", "cpu=1", "cpu=1", false, true},
	} {
		have, fresh := &v1.Node{}, &v1.Node{}
		have.Status.Capacity, have.Status.Allocatable = resources(tc.have), resources(tc.have)
		fresh.Status.Capacity, fresh.Status.Allocatable = resources(tc.fresh), resources(tc.fresh)
		got := reconcileNode(have, fresh, tc.freshDevices)
		for _, l := range []v1.ResourceList{have.Status.Capacity, have.Status.Allocatable} {
			if got != tc.changed || !equality.Semantic.DeepEqual(l, resources(tc.want)) {
				t.Errorf("%s: %t, %v", tc.name, got, l)
			}
		}
	}
}
