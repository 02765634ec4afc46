package sorting

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// element is sorted by its key; at is where it was before.
type element struct {
	key, at int
	name    string
}

func byKey(a, b element) int { return cmp.Compare(a.key, b.key) }

// random has n elements whose keys come about three times each.
func random(r *rand.Rand, n int) []element {
	s := make([]element, n)
	for i := range s {
		s[i] = element{key: r.IntN(n/3 + 1), at: i, name: "element"}
	}
	return s
}

func TestSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		given := random(r, n)
		want := slices.Clone(given)
		slices.SortStableFunc(want, byKey)

		got := slices.Clone(given)
		Stable(got, byKey)
		if !slices.Equal(got, want) {
			t.Fatalf("Stable of %v = %v, want %v", given, got, want)
		}

		got = slices.Clone(given)
		Func(got, byKey)
		if !slices.IsSortedFunc(got, byKey) {
			t.Fatalf("Func of %v = %v", given, got)
		}
		slices.SortFunc(got, func(a, b element) int { return cmp.Or(byKey(a, b), cmp.Compare(a.at, b.at)) })
		if !slices.Equal(got, want) {
			t.Fatalf("Func of %v has other elements: %v", given, got)
		}
	}
}

// Slices of a node are short.
func TestShortSlicesCostNoMemory(t *testing.T) {
	s := random(rand.New(rand.NewPCG(3, 4)), fewUnstable)
	if n := testing.AllocsPerRun(100, func() { slices.Reverse(s); Func(s, byKey); Stable(s, byKey) }); n != 0 {
		t.Errorf("%v allocations for %d elements, want none", n, len(s))
	}
}

func BenchmarkSort(b *testing.B) {
	for _, n := range []int{3, 10, 100, 1000} {
		given := random(rand.New(rand.NewPCG(5, 6)), n)
		s := make([]element, n)
		for _, c := range []struct {
			name string
			sort func([]element)
		}{
			{"sorting.Func", func(s []element) { Func(s, byKey) }},
			{"slices.SortFunc", func(s []element) { slices.SortFunc(s, byKey) }},
			{"sorting.Stable", func(s []element) { Stable(s, byKey) }},
			{"slices.SortStableFunc", func(s []element) { slices.SortStableFunc(s, byKey) }},
		} {
			b.Run(fmt.Sprint(c.name, "/", n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					copy(s, given)
					c.sort(s)
				}
			})
		}
	}
}
