package memmgr_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

func TestResourceNames(t *testing.T) {
	for size, want := range map[uint64]memmgr.Resource{64 << 10: "hugepages-64Ki", 2 << 20: "hugepages-2Mi", 1 << 30: "hugepages-1Gi", 16 << 30: "hugepages-16Gi", 1000: "hugepages-1000", 1 << 63: "hugepages-8Ei"} {
		if got := memmgr.HugePages(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
		if back, ok := want.PageSize(); !ok || back != size {
			t.Errorf("%s: %d, %t", want, back, ok)
		}
	}
	for _, r := range []memmgr.Resource{"memory", "cpu", "hugepages-", "hugepages-0", "hugepages-Mi", "hugepages-2048Ki", "hugepages-+2Mi", "hugepages-02Mi", "hugepages-2M", "hugepages-16Ei", "hugepages--2Mi"} {
		if size, ok := r.PageSize(); ok {
			t.Errorf("%s is %d", r, size)
		}
	}
}

type totals = map[memmgr.Resource]uint64

func TestAddReserved(t *testing.T) {
	r := memmgr.Reserved{}
	for _, tc := range []struct {
		node     int
		resource memmgr.Resource
		bytes    uint64
		want     string
	}{
		{0, "memory", 5, ""},
		{0, "hugepages-2Mi", 5, ""},
		{1, "memory", 5, ""},
		{0, "memory", 6, "given twice, as 5 and as 6 bytes"},
		{1, "hugepages-1Gi", 0, "is 0 bytes"},
		{1, "cpu", 1, `resource "cpu"`},
	} {
		err := r.Add(tc.node, tc.resource, tc.bytes)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v: %v", tc, err)
		}
	}
	if len(r[0]) != 2 || len(r[1]) != 1 {
		t.Errorf("%v", r)
	}
}

func TestValidateReserved(t *testing.T) {
	m, _ := machine(10, 10)
	m.Nodes[0].HugePages = map[uint64]uint64{huge1G: 2}
	for _, tc := range []struct {
		name     string
		reserved memmgr.Reserved
		total    totals
		want     string
	}{
		{"none of either", nil, nil, ""},
		{"0 and not set are equal", nil, totals{"memory": 0, "hugepages-1Gi": 0}, ""},
		{"equal", memmgr.Reserved{0: {"memory": 5}, 1: {"memory": 6}}, totals{"memory": 11}, ""},
		{"one node is enough", memmgr.Reserved{0: {"memory": 11}}, totals{"memory": 11}, ""},
		{"too little", memmgr.Reserved{0: {"memory": 10}}, totals{"memory": 11}, "memory is 10 bytes over all nodes; want 11"},
		{"set here alone", memmgr.Reserved{0: {"memory": 10}}, nil, "memory is 10 bytes over all nodes; want 0"},
		{"set there alone", nil, totals{"memory": 10}, "memory is 0 bytes over all nodes; want 10"},
		{"huge pages", memmgr.Reserved{0: {"memory": 10, "hugepages-1Gi": gi}}, totals{"memory": 10, "hugepages-1Gi": 2 * gi}, "hugepages-1Gi is 1073741824 bytes over all nodes; want 2147483648"},
		{"no such node", memmgr.Reserved{2: {"memory": 10}}, totals{"memory": 10}, "node 2: the machine has nodes 0-1"},
		{"no such pages", memmgr.Reserved{1: {"hugepages-1Gi": gi}}, totals{"hugepages-1Gi": gi}, "the node has 0"},
		{"no such resource", memmgr.Reserved{1: {"cpu": 1}}, totals{"cpu": 1}, `resource "cpu"`},
		{"zero", memmgr.Reserved{1: {"memory": 0}}, nil, "is 0 bytes; want more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := memmgr.ValidateReserved(m, tc.reserved, tc.total)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	m, _ := machine(9, 29)
	m.Nodes = append(m.Nodes, numa.Node{ID: 2, Memory: 100 * gi}) // no CPUs
	for _, tc := range []struct {
		total totals
		want  string
	}{
		{totals{"memory": 4 * gi}, "map[0:map[memory:1073741824] 1:map[memory:3221225472]]"},
		{totals{"memory": 100<<20 + 1}, "map[0:map[memory:26214401] 1:map[memory:78643200]]"},
		{totals{"memory": 140 * gi}, "map[0:map[memory:10737418240] 1:map[memory:32212254720] 2:map[memory:107374182400]]"},
		{totals{"memory": 1}, "map[0:map[memory:1]]"},
		{totals{"memory": 0}, "map[]"},
		{totals{"memory": 141 * gi, "hugepages-2Mi": 1}, "reserved memory: memory is 151397597184 bytes; the machine has 150323855360\nreserved memory: hugepages-2Mi is 1 bytes; the machine has 0"},
		{totals{"cpu": 1}, "reserved memory: cpu is 1 bytes; the machine has 0"},
	} {
		r, err := memmgr.Spread(m, tc.total)
		got := fmt.Sprint(r)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%v: %s\nwant %s", tc.total, got, tc.want)
		}
	}
}

// A computed distribution of the reserved memory always passes validation.
func TestSpreadIsValid(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		m := randomMachine(rnd)
		want := totals{memmgr.Memory: 1 + rnd.Uint64N(6*gi)}
		if rnd.IntN(2) == 0 {
			want[memmgr.HugePages(huge1G)] = rnd.Uint64N(3) * gi
		}
		r, err := memmgr.Spread(m, want)
		if err != nil {
			continue
		}
		if err := memmgr.ValidateReserved(m, r, maps.Clone(want)); err != nil {
			t.Fatalf("%v of %+v: %v", want, m.Nodes, err)
		}
	}
}
