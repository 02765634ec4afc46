package kernel

import (
	"bytes"
	"math"
	"strconv"
)

// Amount is a number, "no limit", or absent. Its zero value is absent.
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

// Unlimited reports whether the Amount means "no limit".
func (a Amount) Unlimited() bool { return a.kind == isUnlimited }

// Pointer returns a pointer to the number, or to the parameter unlimited if there is no limit. It
// returns nil if the Amount is absent.
func (a Amount) Pointer(unlimited uint64) *uint64 {
	switch a.kind {
	case isNumber:
		return &a.n
	case isUnlimited:
		return &unlimited
	}
	return nil
}

// Less returns a minus b, or 0 if b is larger: a and b come from files that are read at different
// times. If one of the two is not a number, Less returns a.
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

// unlimited is the smallest limit that means "no limit", as in the kubelet. cgroup v1 shows no limit
// as the largest multiple of the page size below 2^63, which differs between machines.
const unlimited = 1 << 62

// parseAmount parses the content b of a file with one number or limit. "max" of v2 and "-1" of v1
// mean no limit. The error is a *FormatError.
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

// Table maps names to numbers. It has the content of a file with lines "name number", such as
// memory.stat.
type Table map[string]uint64

// ParseTable parses lines "name number". It skips lines without a number. If several lines have the
// same name, the last one counts.
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

// amount returns the number of the first of names that is in the table, or an absent Amount.
func (t Table) amount(names ...string) Amount {
	for _, name := range names {
		if n, ok := t[name]; ok {
			return Number(n)
		}
	}
	return Amount{}
}
