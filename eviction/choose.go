package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// The choice of victims, as a pure function: the order of the candidates comes from
// [rank.Sort], the figures from the lane. Every candidate gets a verdict, for
// [Manager.Decisions].

// Verdict is what was decided of one candidate.
type Verdict string

// The verdicts.
const (
	Chosen     Verdict = "chosen"
	Critical   Verdict = "critical"            // never evicted
	UnderWay   Verdict = "being evicted"       // for this or another reason
	NoFigures  Verdict = "no figures"          // while others are known to use too much
	WithinRest Verdict = "within its request"  // while others are not
	Enough     Verdict = "enough with others"  // those before it will do
	OverBudget Verdict = "too many at a time"  // Config.Victims
	Failed     Verdict = "eviction failed now" // its last one did, seconds ago
)

// situation is what a choice depends on besides the candidates.
type situation struct {
	// Amounts are in units of the signal: bytes, inodes or processes.
	need    int64 // to be freed, in units of the signal
	coming  int64 // what evictions under way will free of it
	running int   // how many are under way for the resource
	any     bool  // whether any is, for whatever resource
	// budget is Config.Victims.
	budget  int
	partial bool // figures of some pods could not be read
	classes bool // the resource can be requested
	// status reports what stands against a pod, "" if nothing does.
	status func(types.UID) Verdict
	// critical reports pods that are never evicted.
	critical func(*v1.Pod) bool
}

// choose decides which of the candidates, in the order of their ranks, are
// evicted now. Those that use more than they request come alone: while one
// of them can be evicted, or any eviction is under way, the others are spared
// until the figures have been read again.
func choose(ranked []rank.Ranked, s situation) []Verdict {
	out := make([]Verdict, len(ranked))
	// An eviction under way counts as a guilty pod: figures from before its end say
	// nothing about what is still needed.
	guilty := s.any
	for i := range ranked {
		r := &ranked[i]
		switch {
		case s.critical(r.Pod):
			out[i] = Critical
		case s.status(r.Pod.UID) != "":
			out[i] = s.status(r.Pod.UID)
		case r.Exceeds:
			guilty = true
		}
	}
	chosen, freed, enough := 0, s.coming, false
	for i := range ranked {
		r := &ranked[i]
		innocent := s.classes && !r.Exceeds
		switch {
		// Critical pods, and those that are being evicted, have their verdict
		// already.
		case out[i] != "":
		// A pod without figures sorts first, as with the kubelet. Here that is no
		// reason to end it in place of pods that are known to use too much.
		case !r.Known() && (s.partial || guilty && s.classes || chosen > 0):
			out[i] = NoFigures
		case innocent && (s.partial || guilty || chosen > 0):
			out[i] = WithinRest
		// What evictions under way will free counts, so that one shortage does not
		// cost more pods than it takes.
		case enough || s.running+chosen > 0 && freed >= s.need:
			out[i] = Enough
		case s.running+chosen >= s.budget:
			out[i] = OverBudget
		default:
			out[i] = Chosen
			chosen++
			freed += r.Used
			// What is not known to free anything may free all.
			enough = r.Used == 0
		}
	}
	return out
}
