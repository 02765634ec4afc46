package rank

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity, or a fraction of a signal's capacity.
type Amount struct {
	// Value is in units of the signal. It is used if Fraction is 0.
	Value int64
	// Fraction is a fraction of the capacity, from 0 to 1.
	Fraction float64
	// Format is the format of the quantity, for display.
	Format resource.Format
}

// Of returns the amount in units of the signal, rounded down.
func (a Amount) Of(capacity int64) int64 {
	if a.Fraction != 0 {
		return int64(float64(capacity) * a.Fraction)
	}
	return a.Value
}

// Quantity returns Of(capacity) for display.
func (a Amount) Quantity(capacity int64) resource.Quantity {
	format := a.Format
	if format == "" {
		format = resource.BinarySI
	}
	return *resource.NewQuantity(a.Of(capacity), format)
}

// Observation is an observed value of a signal.
type Observation struct {
	Available, Capacity int64
	// Time is the time of the reading, by time.Now. Zero means unknown; the observation counts
	// as new then.
	Time time.Time
}

// Threshold is the value below which a signal is low. Thresholds can be compared with ==.
type Threshold struct {
	Signal Signal
	// Value is the limit: the threshold is met if less is available.
	Value Amount
	// Grace is the time for which the threshold must be met before a pod is evicted. It is 0 for
	// a hard threshold.
	Grace time.Duration
	// MinReclaim is the amount above Value that must be available, once the node has acted,
	// before the threshold counts as resolved.
	MinReclaim Amount
}

// Hard reports whether the threshold has no grace period.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Met reports whether less is available than Value.
func (t Threshold) Met(o Observation) bool { return o.Available < t.Value.Of(o.Capacity) }

// Unresolved reports whether less than Value plus MinReclaim is available.
func (t Threshold) Unresolved(o Observation) bool { return t.Need(o) > 0 }

// Need returns the amount to free until Value plus MinReclaim is available, in units of the
// signal. It is 0 or negative if that much is available.
func (t Threshold) Need(o Observation) int64 {
	return t.Value.Of(o.Capacity) + t.MinReclaim.Of(o.Capacity) - o.Available
}
