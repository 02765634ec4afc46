package rank

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity, or a part of a signal's capacity. The zero value is
// nothing.
type Amount struct {
	// Value is in the units of the signal. It counts if Fraction is 0.
	Value int64
	// Fraction of the capacity, from 0 to 1.
	Fraction float64
	// Format is how the quantity was written; it only counts for String.
	Format resource.Format
}

// Of is the amount in units of the signal, rounded down.
func (a Amount) Of(capacity int64) int64 {
	if a.Fraction != 0 {
		return int64(float64(capacity) * a.Fraction)
	}
	return a.Value
}

// Quantity is Of(capacity) as it is shown to people.
func (a Amount) Quantity(capacity int64) resource.Quantity {
	format := a.Format
	if format == "" {
		format = resource.BinarySI
	}
	return *resource.NewQuantity(a.Of(capacity), format)
}

// Observation is what a signal was seen to be.
type Observation struct {
	Available, Capacity int64
	// Time is when it was read, by time.Now. Zero means that this is not
	// known, and that it is as good as new.
	Time time.Time
}

// Threshold defines below what a signal is low. Values may be compared with ==.
type Threshold struct {
	Signal Signal
	// Value is met by an observation with less available than that.
	Value Amount
	// Grace is how long that must last before a pod is evicted; 0 makes a
	// threshold hard.
	Grace time.Duration
	// MinReclaim is how far above Value the signal has to come, once acted
	// upon, to be no longer low.
	MinReclaim Amount
}

// Hard reports whether the threshold is acted upon at once.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Met reports whether the signal is low. At the threshold it is not.
func (t Threshold) Met(o Observation) bool { return o.Available < t.Value.Of(o.Capacity) }

// Unresolved reports whether a signal that was low has not recovered by the
// minimum to reclaim.
func (t Threshold) Unresolved(o Observation) bool { return t.Need(o) > 0 }

// Need is how much has to be freed for the signal to recover, in units of the
// signal, with the minimum to reclaim; 0 or less if nothing.
func (t Threshold) Need(o Observation) int64 {
	return t.Value.Of(o.Capacity) + t.MinReclaim.Of(o.Capacity) - o.Available
}
