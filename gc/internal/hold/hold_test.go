package hold

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func add(t *testing.T, h *Hold[string], k string, want bool) {
	t.Helper()
	if intact, err := h.Add(t.Context(), k); err != nil || intact != want {
		t.Errorf("Add(%q) = %v, %v, want %v", k, intact, err, want)
	}
}

func take(t *testing.T, p *Pass[string], want bool, keys ...string) func() {
	t.Helper()
	if free := p.Free(keys...); free != want {
		t.Errorf("Free(%q) = %v, want %v", keys, free, want)
	}
	done, ok := p.Take(keys...)
	if ok != want {
		t.Errorf("Take(%q) = %v, want %v", keys, ok, want)
	}
	return done
}

func TestHeldIsNotTaken(t *testing.T) {
	var table Table[string]
	h := table.Open()
	p := table.Begin()
	add(t, h, "a", true)
	take(t, p, false, "id", "a")
	take(t, p, true, "b")()
	h.Release()
	h.Release()
	take(t, p, false, "a") // its user may have shown up since the facts were read
	p.End()
	p = table.Begin()
	take(t, p, true, "id", "a")()
	p.End()
}

func TestTwoHoldsOfOneThing(t *testing.T) {
	var table Table[string]
	a, b := table.Open(), table.Open()
	add(t, a, "x", true)
	add(t, a, "x", true)
	add(t, b, "x", true)
	a.Release()
	p := table.Begin()
	take(t, p, false, "x")
	b.Release()
	p.End()
	p = table.Begin()
	take(t, p, true, "x")()
}

func TestOnePassTakesAtATime(t *testing.T) {
	var table Table[string]
	p, q := table.Begin(), table.Begin()
	done := take(t, p, true, "x", "y")
	take(t, q, false, "y", "z")
	done()
	done()
	take(t, q, true, "y", "z")()
}

func TestAddWaitsForRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table[string]
		p := table.Begin()
		h := table.Open()
		done := take(t, p, true, "x")
		start := time.Now()
		time.AfterFunc(time.Second, done)
		add(t, h, "x", false) // what h knew of it is out of date
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %v, want 1s", waited)
		}
		add(t, h, "x", true) // and from now on it is held
		take(t, p, false, "x")

		late := table.Open() // knows nothing from before the removal
		add(t, late, "x", true)
	})
}

func TestAddEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table[string]
		p := table.Begin()
		done := take(t, p, true, "x")
		h := table.Open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Add(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Add: %v, want the context's error", err)
		}
		done()
		take(t, p, true, "x")() // it was not held
	})
}

// A pull that ends with an image that was removed meanwhile, under a name that
// the hold did not have.
func TestRemovedUnderAnotherName(t *testing.T) {
	var table Table[string]
	p := table.Begin()
	h := table.Open()
	add(t, h, "tag", true)
	take(t, p, true, "id", "other-tag")()
	add(t, h, "id", false)
	add(t, h, "id", true)
	take(t, p, false, "id")
}

// A removal that began before the hold and ends after it was opened.
func TestRemovalAcrossOpen(t *testing.T) {
	var table Table[string]
	p := table.Begin()
	done := take(t, p, true, "id")
	h := table.Open()
	add(t, h, "tag", true)
	done()
	add(t, h, "id", false)
}

func TestNothingIsRememberedForNobody(t *testing.T) {
	var table Table[string]
	for range 3 {
		h := table.Open()
		p := table.Begin()
		add(t, h, "a", true)
		take(t, p, true, "b")()
		h.Release()
		add(t, h, "c", true) // too late, and of no effect
		p.End()
	}
	for name, n := range map[string]int{
		"held": len(table.held), "holds": len(table.holds), "passes": len(table.passes),
		"taking": len(table.taking), "released": len(table.released), "removed": len(table.removed),
	} {
		if n != 0 {
			t.Errorf("%d %s left", n, name)
		}
	}
}
