package local

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/podtext"
)

// PageAgent has the data for the page. *Client implements it.
type PageAgent interface {
	Pods(ctx context.Context) (*v1.PodList, error)
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	Events(ctx context.Context, namespace, name string) (*v1.EventList, error)
	Why(ctx context.Context, namespace, name string) (*Why, error)
	Whys(ctx context.Context) ([]Why, error)
	AllEvents(ctx context.Context) (*v1.EventList, error)
	Node(ctx context.Context) (*v1.Node, error)
	WhyNode(ctx context.Context) (*NodeWhy, error)
	Problems(ctx context.Context) ([]Problem, error)
	Images(ctx context.Context) (*Images, error)
	Summary(ctx context.Context, small bool) (*statsapi.Summary, error)
	History(ctx context.Context) (*Usage, error)
	Log(ctx context.Context, namespace, name string, o LogOptions) (io.ReadCloser, error)
}

// sharedHistory is an agent whose history is cached until there may be a new measurement. The
// history is large, and each open page requests it every 3 seconds.
type sharedHistory struct {
	PageAgent

	mu   sync.Mutex
	last *Usage // read-only; nil: none yet
	at   time.Time
}

// History implements PageAgent.
func (s *sharedHistory) History(ctx context.Context) (*Usage, error) {
	s.mu.Lock()
	last, age := s.last, time.Since(s.at)
	s.mu.Unlock()
	if last != nil && age < historyEvery/2 {
		return last, nil
	}
	u, err := known(s.PageAgent.History(ctx))
	if err == nil {
		s.mu.Lock()
		s.last, s.at = u, time.Now()
		s.mu.Unlock()
	}
	return u, err
}

const (
	// answerTime limits the wait for an answer.
	answerTime = 5 * time.Second
	maxEvents  = 40
)

// answers has the agent's answers for the first page.
type answers struct {
	at       time.Time
	node     *v1.Node // nil, as in other fields, if not known
	why      *NodeWhy
	pods     []v1.Pod
	whys     map[types.UID]*Why
	problems []Problem
	images   *Images
	next     []rank.Ranked // by memory; the first would be evicted first
	used     map[types.UID]*statsapi.PodStats
	summary  *statsapi.Summary
	history  *Usage
	events   []v1.Event
	evicted  map[types.UID]podtext.Evictions
	errs     []error // why answers are missing
	down     error   // why the agent did not list its pods
}

// gather asks the agent for everything that the first page shows.
func gather(ctx context.Context, a PageAgent) *answers {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	o := &answers{at: time.Now(), whys: map[types.UID]*Why{}, used: map[types.UID]*statsapi.PodStats{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	ask := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				o.errs = append(o.errs, err)
			}
		})
	}
	ask(func() error {
		all, err := a.Pods(ctx)
		if o.down = err; err == nil {
			o.pods = slices.Clone(all.Items)
		}
		return nil
	})
	ask(func() (err error) { o.why, err = known(a.WhyNode(ctx)); return err })
	ask(func() (err error) { o.problems, err = a.Problems(ctx); return err })
	ask(func() (err error) { o.images, err = known(a.Images(ctx)); return err })
	ask(func() (err error) { o.summary, err = known(a.Summary(ctx, true)); return err })
	ask(func() error { o.node, _ = known(a.Node(ctx)); return nil })       // not every agent describes its node
	ask(func() error { o.history, _ = known(a.History(ctx)); return nil }) // or keeps a history
	ask(func() error {
		all, err := known(a.AllEvents(ctx))
		if err == nil {
			o.events, o.evicted = all.Items, podtext.EvictionsOf(all.Items)
		}
		return err
	})
	ask(func() error {
		all, err := a.Whys(ctx)
		for i := range all {
			o.whys[types.UID(all[i].UID)] = &all[i]
		}
		return err
	})
	wg.Wait()
	slices.SortStableFunc(o.events, func(a, b v1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	o.events = first(o.events, maxEvents)
	if o.summary != nil {
		for i := range o.summary.Pods {
			o.used[types.UID(o.summary.Pods[i].PodRef.UID)] = &o.summary.Pods[i]
		}
	}
	o.next = evictedNext(o)
	slices.SortFunc(o.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	o.errs = slices.CompactFunc(o.errs, func(a, b error) bool { return a.Error() == b.Error() })
	return o
}

// known returns an answer, or nil if there is an error.
func known[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// isBad reports whether a pod has a problem, according to its explanation w, which is nil if it is
// not known.
func isBad(p *v1.Pod, w *Why) bool {
	if w != nil {
		return !w.Good
	}
	return p.Status.Phase != v1.PodSucceeded && !isReady(p)
}

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// evictedNext returns the pods in the order in which a node that is short of memory would evict
// them.
func evictedNext(a *answers) []rank.Ranked {
	var all []rank.Candidate
	for i := range a.pods {
		p := &a.pods[i]
		u := a.used[p.UID]
		if u == nil || u.Memory == nil || u.Memory.WorkingSetBytes == nil || p.Status.Phase != v1.PodRunning {
			continue
		}
		all = append(all, rank.Candidate{Pod: p, Usage: &rank.Usage{Memory: signed(u.Memory.WorkingSetBytes)}})
	}
	return rank.Sort(rank.Rules{}, rank.SignalMemory, all)
}
