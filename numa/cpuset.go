package numa

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// MaxCPUs is the limit of CPU IDs: 0 to 8191, the largest NR_CPUS of Linux.
const MaxCPUs = 8192

// CPUSet is a set of logical CPUs. The zero value is empty. It is an immutable
// value; compare with [CPUSet.Equal]. Bit i%64 of word i/64 stands for CPU i. Words
// have no trailing zeros, so that equal sets have equal words.
type CPUSet struct {
	words []uint64 // never modified; the last word is not zero
}

// CPUs returns the set of the given CPUs. It panics if an ID is not from 0 to MaxCPUs-1: use
// [ParseCPUs] for untrusted input.
func CPUs(ids ...int) CPUSet {
	if len(ids) == 0 {
		return CPUSet{}
	}
	// The largest ID is in the last word, which is therefore not zero.
	w := make([]uint64, slices.Max(ids)/64+1)
	for _, id := range ids {
		if id < 0 || id >= MaxCPUs {
			panic(fmt.Sprintf("numa: CPU %d; want 0 to %d", id, MaxCPUs-1))
		}
		w[id/64] |= 1 << (id % 64)
	}
	return CPUSet{w}
}

// ParseCPUs parses the kernel's list format (cpuset(7)), such as "0-3,8,10-11". Order, overlaps
// and surrounding space do not matter; "" is the empty set. The error quotes the part that is
// wrong.
func ParseCPUs(s string) (CPUSet, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return CPUSet{}, nil
	}
	// A fixed array: numbers out of range are rejected before memory is allocated for them.
	var w [MaxCPUs / 64]uint64
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		a, err := cpuID(from)
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list %q: %w", s, err)
		}
		b, err := cpuID(to)
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list %q: %w", s, err)
		}
		if a > b {
			return CPUSet{}, fmt.Errorf("CPU list %q: range %q goes down; want the smaller number first", s, part)
		}
		for id := a; id <= b; id++ {
			w[id/64] |= 1 << (id % 64)
		}
	}
	return trimmed(slices.Clone(w[:])), nil
}

// cpuID parses the number of a CPU, without a sign.
func cpuID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= MaxCPUs {
		return 0, fmt.Errorf("%q is not a CPU; want a number from 0 to %d", s, MaxCPUs-1)
	}
	return int(n), nil
}

// trimmed returns the set of w without trailing zero words. It takes ownership of w.
func trimmed(w []uint64) CPUSet {
	for len(w) > 0 && w[len(w)-1] == 0 {
		w = w[:len(w)-1]
	}
	return CPUSet{w}
}

// Has reports whether a CPU is in s.
func (s CPUSet) Has(id int) bool {
	return id >= 0 && id/64 < len(s.words) && s.words[id/64]>>(id%64)&1 == 1
}

// Len returns the number of CPUs.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether s has no CPU.
func (s CPUSet) Empty() bool { return len(s.words) == 0 }

// Equal reports whether s and t have the same CPUs.
func (s CPUSet) Equal(t CPUSet) bool { return slices.Equal(s.words, t.words) }

// SubsetOf reports whether all CPUs of s are in t.
func (s CPUSet) SubsetOf(t CPUSet) bool {
	for i, w := range s.words {
		if i >= len(t.words) || w&^t.words[i] != 0 {
			return false
		}
	}
	return true
}

// Union returns the CPUs that are in s or t.
func (s CPUSet) Union(t CPUSet) CPUSet {
	if len(s.words) < len(t.words) {
		s, t = t, s
	}
	// A union of sets without zero words at the end has none either.
	w := slices.Clone(s.words)
	for i := range t.words {
		w[i] |= t.words[i]
	}
	return CPUSet{w}
}

// Intersect returns the CPUs that are in both s and t.
func (s CPUSet) Intersect(t CPUSet) CPUSet {
	w := slices.Clone(s.words[:min(len(s.words), len(t.words))])
	for i := range w {
		w[i] &= t.words[i]
	}
	return trimmed(w)
}

// IntersectLen returns the number of CPUs that are in both s and t. It does not
// allocate.
func (s CPUSet) IntersectLen(t CPUSet) int {
	n := 0
	for i := range min(len(s.words), len(t.words)) {
		n += bits.OnesCount64(s.words[i] & t.words[i])
	}
	return n
}

// Minus returns the CPUs of s that are not in t.
func (s CPUSet) Minus(t CPUSet) CPUSet {
	w := slices.Clone(s.words)
	for i := range min(len(w), len(t.words)) {
		w[i] &^= t.words[i]
	}
	return trimmed(w)
}

// All iterates over the IDs of s in ascending order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// IDs returns the IDs of s in ascending order.
func (s CPUSet) IDs() []int { return slices.Collect(s.All()) }

// String returns s in the kernel's list format (cpuset(7)), such as "0-3,8".
func (s CPUSet) String() string { return listFormat(s.All()) }

// MarshalText returns String.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses text like [ParseCPUs].
func (s *CPUSet) UnmarshalText(text []byte) error {
	t, err := ParseCPUs(string(text))
	if err == nil {
		*s = t
	}
	return err
}

// listFormat formats ascending numbers, with ranges for consecutive ones.
func listFormat(ids iter.Seq[int]) string {
	var b []byte
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(first), 10)
		if last > first {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
	}
	for id := range ids {
		if id != last+1 || first < 0 {
			flush()
			first = id
		}
		last = id
	}
	flush()
	return string(b)
}
