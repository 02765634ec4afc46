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

// Records of decisions, for people who ask why a pod was evicted, or why none was.
// They are kept in memory, the last Config.Records of them.

// shown is how many candidates of a decision are kept, besides those chosen.
const shown = 10

// PodRef names a pod.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

// String returns namespace/name.
func (r PodRef) String() string { return r.Namespace + "/" + r.Name }

func ref(p *v1.Pod) PodRef { return PodRef{p.Namespace, p.Name, p.UID} }

// Step is something that was removed to spare pods.
type Step struct {
	Name          string // containers or images
	Took          time.Duration
	Before, After int64 // of the signal, available
	Error         string
}

// Considered is a pod in the order of eviction, with the figures that gave it
// its place, in units of the signal.
type Considered struct {
	Pod           PodRef
	Known         bool // whether there were figures
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
	Took         time.Duration // until its containers had stopped
	Error        string
}

// Decision is what was done about one threshold or limit, and on what
// grounds. Figures are in units of the signal: bytes, inodes or processes.
type Decision struct {
	Time time.Time
	// Repeats counts decisions since then that came to the same; the figures
	// are of the last one.
	Repeats int
	// Cause is why the figures were looked at: start, interval, the end of
	// an eviction, or what a notifier said.
	Cause  string
	Signal rank.Signal // empty if it is about a limit
	Limit  rank.Limit
	Soft   bool
	Since  time.Time // since when the threshold was met

	Threshold, Available, Capacity int64
	Need                           int64 // to be freed

	Steps      []Step
	Considered []Considered // the first of them
	Victims    []*Victim
	Outcome    string
	Error      string
}

// String is the decision in one line.
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

// rank notes the candidates with their verdicts. A node may have hundreds of pods:
// all that were chosen are kept, and the first of the others.
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

// same reports whether two decisions that changed nothing came to the same.
func (d *Decision) same(o *Decision) bool {
	return d.Signal == o.Signal && d.Limit == o.Limit && d.Outcome == o.Outcome && d.Error == o.Error
}

// records are the last decisions, oldest first.
type records struct {
	limit int
	list  []*Decision
}

// record keeps a decision. One that changed nothing and came to the same as an
// earlier one since the last act takes its place: under lasting pressure without a
// pod to evict there would be nothing else in the records soon.
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
	if len(r.list) == r.limit {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, d)
}

// Decisions are the last ones, oldest first. The result is the caller's.
func (m *Manager) Decisions() []Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Decision, len(m.records.list))
	// Victims are changed by evictions under way, which is why they are copied one
	// by one.
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
