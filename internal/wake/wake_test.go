package wake_test

import (
	"testing"

	"github.com/nodewright/nodewright/internal/wake"
)

func TestSignal(t *testing.T) {
	s := wake.New()
	set := func() bool {
		select {
		case <-s:
			return true
		default:
			return false
		}
	}
	if set() {
		t.Error("a new signal is set")
	}
	s.Set()
	s.Set()
	if !set() || set() {
		t.Error("two settings do not count as one")
	}
}
