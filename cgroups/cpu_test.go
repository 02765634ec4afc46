package cgroups

import (
	"math"
	"testing"
	"testing/quick"
)

func TestShares(t *testing.T) {
	for _, tc := range []struct {
		milli int64
		want  uint64
	}{
		{0, 2}, {-1, 2}, {1, 2}, {2, 2}, {3, 3}, {100, 102}, {1000, 1024}, {256000, 262144}, {math.MaxInt64, 262144},
	} {
		if got := sharesOf(tc.milli); got != tc.want {
			t.Errorf("SharesOf(%d) = %d, want %d", tc.milli, got, tc.want)
		}
	}
	for _, tc := range []struct {
		shares uint64
		want   int64
	}{{0, 0}, {1, 0}, {2, 2}, {102, 100}, {1024, 1000}, {262144, 256000}, {math.MaxUint64, 256000}} {
		if got := milliOfShares(tc.shares); got != tc.want {
			t.Errorf("MilliOfShares(%d) = %d, want %d", tc.shares, got, tc.want)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, tc := range []struct {
		milli  int64
		period uint64
		want   int64
	}{
		{0, 0, 0}, {5, 0, 1000}, {9, 0, 1000}, {10, 0, 1000}, {200, 0, 20000}, {1500, 0, 150000},
		{100, 5000, 1000}, {1000, 5000, 5000}, {-5, 0, 0}, {math.MaxInt64, 100000, math.MaxInt64 / 100000 * 100000 / 1000},
	} {
		if got := quotaOf(tc.milli, tc.period); got != tc.want {
			t.Errorf("QuotaOf(%d, %d) = %d, want %d", tc.milli, tc.period, got, tc.want)
		}
	}
}

func TestWeights(t *testing.T) {
	for _, tc := range []struct{ shares, weight uint64 }{
		{0, 0}, {1, 1}, {2, 1}, {1024, 39}, {262143, 9999}, {262144, 10000}, {math.MaxUint64, 10000},
	} {
		if got := weightOf(tc.shares); got != tc.weight {
			t.Errorf("WeightOf(%d) = %d, want %d", tc.shares, got, tc.weight)
		}
	}
	for _, tc := range []struct{ weight, shares uint64 }{
		{1, 2}, {2, 28}, {3, 54}, {4, 80}, {245, 6398}, {10000, 262144}, {0, 2}, {math.MaxUint64, 262144},
	} {
		if got := sharesOfWeight(tc.weight); got != tc.shares {
			t.Errorf("SharesOfWeight(%d) = %d, want %d", tc.weight, got, tc.shares)
		}
	}
}

// More of one is never less of the other.
func TestConversionsAreMonotonic(t *testing.T) {
	property := func(a, b uint32) bool {
		lo, hi := min(a, b), max(a, b)
		return sharesOf(int64(lo)) <= sharesOf(int64(hi)) &&
			weightOf(uint64(lo)) <= weightOf(uint64(hi)) &&
			sharesOfWeight(uint64(lo)) <= sharesOfWeight(uint64(hi)) &&
			milliOfShares(uint64(lo)) <= milliOfShares(uint64(hi)) &&
			quotaOf(int64(lo), 0) <= quotaOf(int64(hi), 0)
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}
