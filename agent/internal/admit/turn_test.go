package admit_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/part"
)

// Many pods of one turn are decided on beside one list, to which those that were admitted are added.
// One of them that ends meanwhile is in the way of nobody.
func TestTurn(t *testing.T) {
	w := newWorld(t)
	w.Turn()
	first := w.has("first", "1500m", book.Unknown)
	if got := said(w.Decide(first)); got != "runs" {
		t.Fatalf("the first pod: %s", got)
	}
	w.Book.Admit(part.RefOf(first))
	w.Counts(first)
	second := w.has("second", "1", book.Unknown)
	if got := said(w.Decide(second)); got != "rejected: OutOfcpu" {
		t.Errorf("a second one beside it: %s", got)
	}
	w.Counts(first) // it begins anew
	if got := said(w.Decide(second)); got != "rejected: OutOfcpu" || len(w.Others("third")) != 1 {
		t.Errorf("a second one beside the first, which counts once: %s, %d pods", got, len(w.Others("third")))
	}
	w.phases[first.UID] = v1.PodSucceeded
	if got := said(w.Decide(second)); got != "runs" {
		t.Errorf("when the first has ended, in the same turn: %s", got)
	}
	if others := w.Others(first.UID); len(others) != 0 {
		t.Errorf("the first is beside itself: %v", others)
	}
	w.Turn()
	if others := w.Others("third"); len(others) != 0 {
		t.Errorf("one that has ended counts in the next turn: %v", others)
	}
}
