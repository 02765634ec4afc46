package dra_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nodewright/nodewright/dra"
)

// A driver is lost when its last instance has gone, and not before.
func TestLostDrivers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var lost []string
		defer r.Subscribe(func(c dra.Change) { lost = append(lost, c.Lost...) })()
		if err := r.Offer(gpu, "2", r.gpu); err != nil {
			t.Fatal(err)
		}
		r.Withdraw(gpu, "1")
		synctest.Wait()
		if len(lost) > 0 {
			t.Errorf("lost %q, and an instance is there", lost)
		}
		r.Withdraw(gpu, "2")
		r.Withdraw(gpu, "2")
		synctest.Wait()
		if !slices.Equal(lost, []string{gpu}) {
			t.Errorf("lost %q", lost)
		}
	})
}
