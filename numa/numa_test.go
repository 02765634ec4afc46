package numa_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestCPUListFormat(t *testing.T) {
	for _, tc := range []struct{ in, out, err string }{
		{"", "", ""},
		{"0", "0", ""},
		{" 0-3,8\n", "0-3,8", ""},
		{"8,3,2,1,0,0-1", "0-3,8", ""},
		{"63,64,65", "63-65", ""},
		{"8191", "8191", ""},
		{"8192", "", `"8192" is not a CPU`},
		{"-1", "", `"" is not a CPU`},
		{"1-", "", `"" is not a CPU`},
		{"3-1", "", `range "3-1" goes down`},
		{"1,,2", "", `"" is not a CPU`},
		{"a", "", `"a" is not a CPU`},
	} {
		s, err := numa.ParseCPUs(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %q", tc.in, err, tc.err)
			}
			continue
		}
		if err != nil || s.String() != tc.out {
			t.Errorf("%q: %q, %v; want %q", tc.in, s, err, tc.out)
		}
	}
}

// CPUSet has the operations of a set.
func TestCPUSetIsASet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() (numa.CPUSet, map[int]bool) {
		m := map[int]bool{}
		var ids []int
		for range r.IntN(40) {
			id := r.IntN(200)
			m[id] = true
			ids = append(ids, id)
		}
		return numa.CPUs(ids...), m
	}
	for range 2000 {
		a, ma := random()
		b, mb := random()
		check := func(what string, got numa.CPUSet, want func(int) bool) {
			var ids []int
			for id := range 210 {
				if want(id) {
					ids = append(ids, id)
				}
			}
			if !slices.Equal(got.IDs(), ids) || got.Len() != len(ids) || !got.Equal(numa.CPUs(ids...)) || got.Empty() != (len(ids) == 0) {
				t.Fatalf("%s of %s and %s is %s, want %v", what, a, b, got, ids)
			}
		}
		check("union", a.Union(b), func(i int) bool { return ma[i] || mb[i] })
		check("intersection", a.Intersect(b), func(i int) bool { return ma[i] && mb[i] })
		check("difference", a.Minus(b), func(i int) bool { return ma[i] && !mb[i] })
		if a.IntersectLen(b) != a.Intersect(b).Len() || a.SubsetOf(b) != a.Minus(b).Empty() {
			t.Fatalf("%s and %s", a, b)
		}
		if again, err := numa.ParseCPUs(a.String()); err != nil || !again.Equal(a) {
			t.Fatalf("%s was read as %s, %v", a, again, err)
		}
	}
}

func TestNodeSet(t *testing.T) {
	s := numa.Nodes(5, 0, 1)
	if s.String() != "0-1,5" || s.Len() != 3 || !s.Has(5) || s.Has(2) || s.Has(64) || s.Has(-1) || !slices.Equal(s.IDs(), []int{0, 1, 5}) {
		t.Errorf("%v %d %v", s, s.Len(), s.IDs())
	}
	if !numa.Nodes(1).Narrower(numa.Nodes(0, 1)) || !numa.Nodes(0).Narrower(numa.Nodes(1)) || s.Narrower(s) {
		t.Error("narrower")
	}
	if !numa.Nodes(1).SubsetOf(s) || s.SubsetOf(numa.Nodes(1)) {
		t.Error("subset")
	}
}

func TestValidate(t *testing.T) {
	good := numa.Machine{CPUs: []numa.CPU{{ID: 0}, {ID: 3, Node: 2}}, Nodes: []numa.Node{{ID: 0}, {ID: 2}}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if got := good.AllCPUs().String() + " " + good.AllNodes().String() + " " + good.CPUsOf(numa.Nodes(2)).String(); got != "0,3 0,2 3" {
		t.Error(got)
	}
	bad := numa.Machine{CPUs: []numa.CPU{{ID: 3}, {ID: 3, Node: 1}}, Nodes: []numa.Node{{ID: 64}, {ID: 0, Distances: []int{10}}}}
	err := bad.Validate()
	for _, want := range []string{"CPUs[1].ID is 3 after 3", "CPUs[1].Node is 1", "Nodes[0].ID is 64", "Nodes[1].ID is 0 after 64", "Nodes[1].Distances has 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1-")
	f.Fuzz(func(t *testing.T, s string) {
		set, err := numa.ParseCPUs(s)
		if err != nil {
			return
		}
		if again, err := numa.ParseCPUs(set.String()); err != nil || !again.Equal(set) {
			t.Errorf("%q: %q, %v", s, set, err)
		}
	})
}
