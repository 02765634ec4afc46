package detached_test

import (
	"testing"

	"github.com/nodewright/nodewright/internal/detached"
)

func TestHandover(t *testing.T) {
	var h detached.Handover
	released := 0
	release := func() { released++ }
	if !h.Use(func() {}) || released != 0 {
		t.Errorf("released %d times before Release", released)
	}
	if !h.Use(func() {
		h.Release(release)
		if released != 0 {
			t.Error("released while in use")
		}
	}) || released != 1 {
		t.Errorf("released %d times, want once, at the end of the call", released)
	}
	h.Release(release)
	if h.Use(func() { t.Error("used after the release") }) || released != 1 {
		t.Errorf("released %d times, want once", released)
	}
	var idle detached.Handover
	idle.Release(release)
	if released != 2 {
		t.Error("what nobody uses is not released at once")
	}
}
