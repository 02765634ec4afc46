package node

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestHugePages(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, tc := range map[string]struct {
		sys       fstest.MapFS
		want, err string
	}{
		"none":    {fstest.MapFS{}, "", ""},
		"sizes":   {fstest.MapFS{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": file("3\n"), "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": file("0\n")}, "hugepages-1Gi=0 hugepages-2Mi=6Mi", ""},
		"small":   {fstest.MapFS{"sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": file("1\n")}, "hugepages-64Ki=64Ki", ""},
		"no size": {fstest.MapFS{"sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages": file("1\n")}, "", ""},
		"damaged": {fstest.MapFS{"sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": file("many")}, "", `hugepages-64kB/nr_hugepages: "many"; want a number of pages`},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := hugePages(kernel.At(tc.sys))
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
