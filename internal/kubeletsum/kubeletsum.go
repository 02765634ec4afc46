// Package kubeletsum computes the checksums in checkpoint files of a kubelet: FNV-1a, 32 bits, over
// a dump of the values that the kubelet has in memory.
//
// The dump is the one that go-spew makes for k8s.io/kubernetes/pkg/util/hash: types and fields by
// their names, keys of maps in ascending order, and "<nil>" for a map or a list that is
// nil, which is not the dump of an empty one. What is dumped is written by hand, as the
// types are the kubelet's own.
package kubeletsum

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// null is the dump of a map, a list or a pointer that is nil.
const null = "<nil>"

// Dump is a dump under way. Its zero value is empty; it is for one goroutine.
type Dump struct{ b bytes.Buffer }

// Add appends to the dump; format and args are those of fmt.Sprintf.
func (d *Dump) Add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// Null appends the dump of a pointer that is nil.
func (d *Dump) Null() { d.b.WriteString(null) }

// Sum is the checksum of what was dumped so far.
func (d *Dump) Sum() uint64 { return sum(d.b.Bytes()) }

// OfText is the checksum of a text that a kubelet sums up as it is.
func OfText(text string) uint64 { return sum([]byte("(string)" + text)) }

func sum(b []byte) uint64 {
	h := fnv.New32a()
	_, _ = h.Write(b) // a hash takes everything
	return uint64(h.Sum32())
}

// Map appends a map; value appends one of its values.
func Map[K cmp.Ordered, V any](d *Dump, m map[K]V, value func(V)) {
	if m == nil {
		d.Null()
		return
	}
	d.b.WriteString("map[")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			d.b.WriteByte(' ')
		}
		fmt.Fprintf(&d.b, "%v:", key)
		value(m[key])
	}
	d.b.WriteByte(']')
}

// List appends a list; value appends one of its values.
func List[T any](d *Dump, list []T, value func(T)) {
	if list == nil {
		d.Null()
		return
	}
	d.b.WriteByte('[')
	for i, item := range list {
		if i > 0 {
			d.b.WriteByte(' ')
		}
		value(item)
	}
	d.b.WriteByte(']')
}
