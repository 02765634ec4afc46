// Package sorting sorts slices of structures without code of its own for each of
// their types. The compiler makes one copy of [slices.SortFunc] for each layout of an
// element, 15 kB with its tables; of a function here it makes 1 kB. Slices of pointers,
// numbers and strings share their copies of package slices, which serves for them.
package sorting

import "sort"

// Up to these lengths elements are inserted one by one, as package slices does: most
// slices of a node are that short, and nothing is allocated for them.
const (
	fewUnstable = 12
	fewStable   = 20
)

// Func sorts s in ascending order of cmp, in place, as [slices.SortFunc] does: equal
// elements may change places.
func Func[E any](s []E, cmp func(a, b E) int) {
	if len(s) <= fewUnstable {
		insert(s, cmp)
		return
	}
	sort.Sort(positionsOf(s, cmp))
}

// Stable sorts s in ascending order of cmp, in place, as [slices.SortStableFunc] does:
// equal elements keep their order.
func Stable[E any](s []E, cmp func(a, b E) int) {
	if len(s) <= fewStable {
		insert(s, cmp)
		return
	}
	sort.Stable(positionsOf(s, cmp))
}

// insert moves each element in front of those that are greater. It is stable.
func insert[E any](s []E, cmp func(a, b E) int) {
	for i := 1; i < len(s); i++ {
		for j := i; j > 0 && cmp(s[j], s[j-1]) < 0; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
}

// positions implements sort.Interface for elements of a type that it does not know.
type positions struct {
	n    int
	less func(i, j int) bool
	swap func(i, j int)
}

// positionsOf returns the positions of s, compared by cmp.
func positionsOf[E any](s []E, cmp func(a, b E) int) *positions {
	return &positions{
		len(s),
		func(i, j int) bool { return cmp(s[i], s[j]) < 0 },
		func(i, j int) { s[i], s[j] = s[j], s[i] },
	}
}

// Len implements sort.Interface.
func (p *positions) Len() int { return p.n }

// Less implements sort.Interface.
func (p *positions) Less(i, j int) bool { return p.less(i, j) }

// Swap implements sort.Interface.
func (p *positions) Swap(i, j int) { p.swap(i, j) }
