package kernel

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Pressure is the pressure stall information (PSI) of a resource (Documentation/accounting/psi.rst).
// Some is the time in which at least one task waited for the resource. Full is the time in which all
// tasks that were not idle waited. For the CPU, Full is zero before Linux 5.13.
type Pressure struct{ Some, Full Stall }

// Stall is a time of waiting: its share of the last 10, 60 and 300 seconds in percent, and its total
// since the boot in microseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Duration returns the total, or the longest Duration if the total is longer.
func (s Stall) Duration() time.Duration {
	return time.Duration(min(s.Total, math.MaxInt64/1000)) * time.Microsecond
}

// Pressure reads the pressure of the machine for a resource: cpu, io or memory. If the kernel has
// no PSI, the error is ErrAbsent.
func (r *Reader) Pressure(ctx context.Context, resource string) (Pressure, error) {
	b, err := r.read(ctx, r.proc, "pressure/"+resource, maxValue)
	if err != nil {
		return Pressure{}, err
	}
	return ParsePressure(b)
}

// ParsePressure parses a file such as memory.pressure. If the line "some" is missing, the error is
// ErrAbsent.
func ParsePressure(b []byte) (Pressure, error) {
	var out Pressure
	some := false
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		var to *Stall
		switch string(f[0]) {
		case "some":
			to, some = &out.Some, true
		case "full":
			to = &out.Full
		default:
			continue
		}
		for _, field := range f[1:] {
			if err := to.set(field); err != nil {
				return Pressure{}, err
			}
		}
	}
	if !some {
		return Pressure{}, fmt.Errorf("pressure: line \"some\": %w", ErrAbsent)
	}
	return out, nil
}

// set stores the value of a field such as avg10=0.12 in s.
func (s *Stall) set(field []byte) error {
	name, value, _ := bytes.Cut(field, []byte{'='})
	average, ok := map[string]*float64{"avg10": &s.Avg10, "avg60": &s.Avg60, "avg300": &s.Avg300}[string(name)]
	switch {
	case string(name) == "total":
		n, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return &FormatError{"pressure", string(field), "microseconds"}
		}
		s.Total = n
	case ok:
		v, err := strconv.ParseFloat(string(value), 64)
		// The negated comparison also refuses NaN, which JSON cannot encode.
		if err != nil || !(v >= 0 && v <= 1e9) {
			return &FormatError{"pressure", string(field), "a share in percent"}
		}
		*average = v
	}
	return nil
}
