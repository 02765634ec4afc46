package kernel

import (
	"bytes"
	"math"
	"strconv"
)

// Amount is a number that may be absent or without limit. Its zero value is absent.
type Amount struct {
	n    uint64
	kind byte
}

const (
	isNumber byte = 1 + iota
	isUnlimited
)

// Number returns an Amount that is a number.
func Number(n uint64) Amount { return Amount{n, isNumber} }

// Number returns the number. It returns false if the Amount is absent or unlimited.
func (a Amount) Number() (uint64, bool) { return a.n, a.kind == isNumber }

// Known reports whether the Amount is a number or unlimited.
func (a Amount) Known() bool { return a.kind != 0 }

// Unlimited reports whether the Amount is that of no limit.
func (a Amount) Unlimited() bool { return a.kind == isUnlimited }

// Pointer returns the number. If there is no limit, it returns the parameter unlimited. If the
// Amount is absent, it returns nil.
func (a Amount) Pointer(unlimited uint64) *uint64 {
	switch a.kind {
	case isNumber:
		return &a.n
	case isUnlimited:
		return &unlimited
	}
	return nil
}

// Less returns a minus b. It returns 0 if b is larger, which may happen because the files are
// read one after the other. If one of the two is not a number, it returns a.
func (a Amount) Less(b Amount) Amount {
	if a.kind == isNumber && b.kind == isNumber {
		a.n -= min(a.n, b.n)
	}
	return a
}

// times multiplies a number by unit. If the product would overflow, the result is the
// largest multiple of unit.
func (a Amount) times(unit uint64) Amount {
	a.n = min(a.n, math.MaxUint64/unit) * unit
	return a
}

// unlimited is the least limit that counts as none, as in the kubelet. cgroup v1 shows the largest
// multiple of a page, which depends on its size.
const unlimited = 1 << 62

// parseAmount parses a file of one number or limit. "max" of v2 and "-1" of v1 are no limit.
func parseAmount(file string, b []byte) (Amount, error) {
	s := string(bytes.TrimSpace(b))
	if s == "max" || s == "-1" {
		return Amount{kind: isUnlimited}, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return Amount{}, &FormatError{file, s, "a number or max"}
	}
	if n >= unlimited {
		return Amount{kind: isUnlimited}, nil
	}
	return Number(n), nil
}

// Table has the lines "name number" of a file such as memory.stat.
type Table map[string]uint64

// ParseTable parses the lines of such a file. A line without a number is skipped. Of several
// lines with one name, the last is used.
func ParseTable(b []byte) Table {
	out := Table{}
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			out[string(name)] = n
		}
	}
	return out
}

// amount returns the number of the first of names that the table has.
func (t Table) amount(names ...string) Amount {
	for _, name := range names {
		if n, ok := t[name]; ok {
			return Number(n)
		}
	}
	return Amount{}
}
