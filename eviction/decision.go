package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Records of the last decisions, in memory. They say why a pod was evicted, or
// why none was.

// maxRecords is the number of decisions that are kept.
const maxRecords = 64

// shown is the maximum number of candidates that a decision records although they were not
// chosen.
const shown = 10

// PodRef names a pod.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

// String returns namespace/name.
func (r PodRef) String() string { return r.Namespace + "/" + r.Name }

func ref(p *v1.Pod) PodRef { return PodRef{p.Namespace, p.Name, p.UID} }

// Step is one kind of reclaim that was tried before pods were evicted, with its effect.
type Step struct {
	Name          string // containers or images
	Took          time.Duration
	Before, After int64 // available amount of the signal
	Error         string
}

// Considered is a candidate with the figures that decided its rank, in units of the signal.
type Considered struct {
	Pod           PodRef
	Known         bool // the usage was known
	Used, Request int64
	Priority      int32
	Verdict       Verdict
}

// Victim is a pod that was chosen.
type Victim struct {
	Pod          PodRef
	GraceSeconds int64
	Began        time.Time
	Ended        bool
	Took         time.Duration // time until its containers had stopped
	Error        string
}

// Decision has the actions for one threshold or limit, and their reasons. Figures are in units
// of the signal: bytes, inodes or processes.
type Decision struct {
	Time time.Time
	// Repeats counts later decisions with the same result; the figures come from the last one.
	Repeats int
	// Cause says what caused the reading: start, interval, the end of an eviction, or the cause
	// that a notifier reported.
	Cause  string
	Signal rank.Signal // empty for a limit
	Limit  rank.Limit
	Soft   bool
	Since  time.Time // time since which the threshold is met

	Threshold, Available, Capacity int64
	Need                           int64 // amount to be freed

	Steps      []Step
	Considered []Considered // the first candidates
	Victims    []*Victim
	Outcome    string
	Error      string
}

// String returns the decision in one line.
func (d *Decision) String() string {
	var b strings.Builder
	what := string(d.Signal)
	if what == "" {
		what = string(d.Limit)
	}
	fmt.Fprintf(&b, "%s: %d available, threshold %d, %d to free (%s): %s", what, d.Available, d.Threshold, d.Need, d.Cause, d.Outcome)
	for _, v := range d.Victims {
		fmt.Fprintf(&b, " %s", v.Pod)
	}
	if d.Error != "" {
		fmt.Fprintf(&b, ": %s", d.Error)
	}
	return b.String()
}

// rank records the candidates with their verdicts: all chosen ones, and the first of the others.
func (d *Decision) rank(ranked []rank.Ranked, verdicts []Verdict) {
	for i := range ranked {
		if r := &ranked[i]; i < shown || verdicts[i] == Chosen {
			d.Considered = append(d.Considered, Considered{
				Pod: ref(r.Pod), Known: r.Known(), Used: r.Used, Request: r.Request, Priority: r.Priority, Verdict: verdicts[i],
			})
		}
	}
}

// acted reports whether the decision changed anything.
func (d *Decision) acted() bool { return len(d.Victims)+len(d.Steps) > 0 }

// same reports whether two decisions without effect have the same result.
func (d *Decision) same(o *Decision) bool {
	return d.Signal == o.Signal && d.Limit == o.Limit && d.Outcome == o.Outcome && d.Error == o.Error
}

// records has the last decisions, oldest first.
type records struct {
	list []*Decision
}

// record stores a decision. If it had no effect, it replaces an earlier one with the same result
// since the last decision with an effect, so that lasting pressure does not fill the records.
func (m *Manager) record(d *Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.records
	for i := len(r.list) - 1; i >= 0 && !d.acted() && !r.list[i].acted(); i-- {
		if before := r.list[i]; d.same(before) {
			d.Time, d.Repeats = before.Time, before.Repeats+1
			r.list[i] = d
			return
		}
	}
	if len(r.list) == maxRecords {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, d)
}

// Decisions returns the last decisions, oldest first. The caller owns the result.
func (m *Manager) Decisions() []Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Decision, len(m.records.list))
	// Victims are copied, since evictions under way change them.
	for i, d := range m.records.list {
		out[i] = *d
		out[i].Steps, out[i].Considered = slices.Clone(d.Steps), slices.Clone(d.Considered)
		out[i].Victims = make([]*Victim, len(d.Victims))
		for j, v := range d.Victims {
			out[i].Victims[j] = new(*v)
		}
	}
	return out
}
