package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// The choice of victims, as a pure function. [rank.Sort] gives the order of the candidates.
// Every candidate gets a verdict, for [Manager.Decisions].

// Verdict is the decision about one candidate.
type Verdict string

// The verdicts.
const (
	Chosen     Verdict = "chosen"
	Critical   Verdict = "critical"            // never evicted
	UnderWay   Verdict = "being evicted"       // for this or another reason
	NoFigures  Verdict = "no figures"          // spared while other pods are known to use too much
	WithinRest Verdict = "within its request"  // spared while other pods exceed theirs
	Enough     Verdict = "enough with others"  // the pods before it free enough
	OverBudget Verdict = "too many at a time"  // the limit is Config.Victims
	Failed     Verdict = "eviction failed now" // its last eviction failed seconds ago
)

// situation has the input of choose besides the candidates.
type situation struct {
	// need and coming are in units of the signal: bytes, inodes or processes.
	need    int64 // amount to be freed
	coming  int64 // amount that evictions under way will free
	running int   // number of evictions under way for the resource
	any     bool  // whether any eviction is under way, for any resource
	// budget is Config.Victims.
	budget  int
	partial bool // usage of some pods could not be read
	classes bool // pods can request the resource
	// status returns a verdict that keeps a pod from being chosen, such as UnderWay. It returns
	// "" if the pod may be chosen.
	status func(types.UID) Verdict
	// critical reports pods that are never evicted.
	critical func(*v1.Pod) bool
}

// choose decides which candidates, in the order of their ranks, are evicted now. Pods within
// their requests are spared while a pod that exceeds its request can be evicted, or any eviction
// is under way.
func choose(ranked []rank.Ranked, s situation) []Verdict {
	out := make([]Verdict, len(ranked))
	// An eviction under way counts as a pod that exceeds its request: figures from before its
	// end do not say what is still needed.
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
		// A pod without figures sorts first, as in the kubelet. It is not evicted in place of
		// pods that are known to exceed their requests.
		case !r.Known() && (s.partial || guilty && s.classes || chosen > 0):
			out[i] = NoFigures
		case innocent && (s.partial || guilty || chosen > 0):
			out[i] = WithinRest
		// Evictions under way count, so that no more pods are evicted than needed.
		case enough || s.running+chosen > 0 && freed >= s.need:
			out[i] = Enough
		case s.running+chosen >= s.budget:
			out[i] = OverBudget
		default:
			out[i] = Chosen
			chosen++
			freed += r.Used
			// An unknown amount may be enough.
			enough = r.Used == 0
		}
	}
	return out
}
