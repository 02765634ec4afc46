package node

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestHugePages(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, tc := range map[string]struct {
		sys       fstest.MapFS
		want, err string
	}{
		"none":    {fstest.MapFS{}, "", ""},
		"sizes":   {fstest.MapFS{"hugepages-2048kB/nr_hugepages": file("3\n"), "hugepages-1048576kB/nr_hugepages": file("0\n")}, "hugepages-1Gi=0 hugepages-2Mi=6Mi", ""},
		"small":   {fstest.MapFS{"hugepages-64kB/nr_hugepages": file("1\n")}, "hugepages-64Ki=64Ki", ""},
		"no size": {fstest.MapFS{"hugepages-xkB/nr_hugepages": file("1\n")}, "", `hugepages-xkB: strconv.ParseInt: parsing "x"`},
		"damaged": {fstest.MapFS{"hugepages-64kB/nr_hugepages": file("many")}, "", `hugepages-64kB/nr_hugepages: strconv.ParseInt: parsing "many"`},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := hugePages(tc.sys)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			var got []string
			for _, n := range slices.Sorted(maps.Keys(list)) {
				q := list[n]
				got = append(got, string(n)+"="+q.String())
			}
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Errorf("%v, %v; want %s", got, err, tc.want)
			}
		})
	}
}

func TestHugePagesAreNoMemoryForOthers(t *testing.T) {
	capacity := v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("256Mi"), v1.ResourceCPU: resource.MustParse("2"),
	}
	n := Machine{Name: "n", Capacity: capacity}.WithDefaults()
	if got := n.Allocatable.Memory().String(); got != "768Mi" || capacity.Memory().String() != "1Gi" || n.Allocatable.Cpu().String() != "2" {
		t.Errorf("allocatable memory %s of %s", got, capacity.Memory())
	}
}
