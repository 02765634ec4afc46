// Package kubeletsum computes the checksums in a kubelet's checkpoint files: the 32-bit
// FNV-1a hash of a text dump of Go values of the kubelet.
//
// The kubelet makes the dump with go-spew (k8s.io/kubernetes/pkg/util/hash). It contains
// the names of types and fields, the keys of maps in ascending order, and "<nil>" for a
// nil map or list, which differs from an empty one. Since the types are internal to the
// kubelet, callers of this package write the dump themselves.
package kubeletsum

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// null is the dump of a nil map, list or pointer.
const null = "<nil>"

// Dump builds a dump. Its zero value is an empty dump. It is not safe for concurrent use.
type Dump struct{ b bytes.Buffer }

// Add appends a text, formatted as by fmt.Sprintf.
func (d *Dump) Add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// Null appends the dump of a nil pointer.
func (d *Dump) Null() { d.b.WriteString(null) }

// Sum returns the checksum of the dump so far.
func (d *Dump) Sum() uint64 { return sum(d.b.Bytes()) }

// OfText returns the checksum of a string. The kubelet dumps it as "(string)" and the text.
func OfText(text string) uint64 { return sum([]byte("(string)" + text)) }

func sum(b []byte) uint64 {
	h := fnv.New32a()
	_, _ = h.Write(b) // never fails
	return uint64(h.Sum32())
}

// Map appends a map. It calls value to append each of the map's values.
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

// List appends a list. It calls value to append each of the list's items.
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
