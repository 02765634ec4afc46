// Package kubeletsum computes the checksums in a kubelet's checkpoint files:
// FNV-1a, 32 bits, of a dump of the kubelet's values in memory.
//
// The dump is the one of go-spew in k8s.io/kubernetes/pkg/util/hash: types and
// fields by their names, keys of maps in ascending order, and "<nil>" for a nil map
// or list, which differs from an empty one. The callers write the dump themselves,
// since the types are the kubelet's.
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

// Dump is an unfinished dump. Its zero value is empty; it is for one goroutine.
type Dump struct{ b bytes.Buffer }

// Add appends to the dump; format and args are those of fmt.Sprintf.
func (d *Dump) Add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// Null appends the dump of a pointer that is nil.
func (d *Dump) Null() { d.b.WriteString(null) }

// Sum returns the checksum of the dump so far.
func (d *Dump) Sum() uint64 { return sum(d.b.Bytes()) }

// OfText returns the checksum of a text, which the kubelet does not dump by type.
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
