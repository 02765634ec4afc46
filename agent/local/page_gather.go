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
)

// PageAgent answers questions about a node. A *local.Client is one.
type PageAgent interface {
	Pods(ctx context.Context) (*v1.PodList, error)
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	Events(ctx context.Context, namespace, name string) (*v1.EventList, error)
	Why(ctx context.Context, namespace, name string) (*Why, error)
	Whys(ctx context.Context) ([]Why, error)
	AllEvents(ctx context.Context) (*v1.EventList, error)
	WhyNode(ctx context.Context) (*NodeWhy, error)
	Problems(ctx context.Context) ([]Problem, error)
	Images(ctx context.Context) (*Images, error)
	Summary(ctx context.Context, small bool) (*statsapi.Summary, error)
	Log(ctx context.Context, namespace, name string, o LogOptions) (io.ReadCloser, error)
}

const (
	// MaxPagePods is how many pods a page shows.
	MaxPagePods = 500
	// answerTime is how long an answer may take.
	answerTime = 5 * time.Second
	maxEvents  = 40
)

// answers are what the agent says for the first page.
type answers struct {
	node     *NodeWhy
	pods     []v1.Pod
	more     int // pods that are left out
	whys     map[types.UID]*Why
	problems []Problem
	images   *Images
	next     []rank.Ranked // of memory, the first would be evicted first
	summary  *statsapi.Summary
	events   []v1.Event
	errs     []error // of what is missing
}

// gather asks the agent for all that the first page shows.
func gather(ctx context.Context, a PageAgent) *answers {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	o := &answers{whys: map[types.UID]*Why{}}
	var mu sync.Mutex
	note := func(err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			o.errs = append(o.errs, err)
		}
	}
	var wg sync.WaitGroup
	ask := func(f func() error) { wg.Go(func() { note(f()) }) }
	ask(func() (err error) { o.node, err = a.WhyNode(ctx); return err })
	ask(func() (err error) { o.problems, err = a.Problems(ctx); return err })
	ask(func() (err error) { o.images, err = a.Images(ctx); return err })
	ask(func() (err error) { o.summary, err = a.Summary(ctx, true); return err })
	var list *v1.PodList
	ask(func() (err error) { list, err = a.Pods(ctx); return err })
	ask(func() error {
		all, err := a.AllEvents(ctx)
		if err == nil {
			o.events = all.Items
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
	if list != nil {
		o.pods = slices.Clone(list.Items)
		good := func(p *v1.Pod) int {
			if isBad(p, o.whys[p.UID]) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(o.pods, func(a, b v1.Pod) int {
			return cmp.Or(cmp.Compare(good(&a), good(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		o.more = max(0, len(o.pods)-MaxPagePods)
		o.pods = first(o.pods, MaxPagePods)
	}
	slices.SortStableFunc(o.events, func(a, b v1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	o.events = first(o.events, maxEvents)
	o.next = evictedNext(list, o.summary)
	return o
}

// isBad reports whether a pod is not as it should be, by its explanation: w, or nil if that is
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

// evictedNext orders pods as a node that is short of memory would evict them.
func evictedNext(list *v1.PodList, s *statsapi.Summary) []rank.Ranked {
	if list == nil || s == nil {
		return nil
	}
	used := map[string]uint64{}
	for _, p := range s.Pods {
		if p.Memory != nil && p.Memory.WorkingSetBytes != nil {
			used[p.PodRef.UID] = *p.Memory.WorkingSetBytes
		}
	}
	var all []rank.Candidate
	for i := range list.Items {
		p := &list.Items[i]
		if n, known := used[string(p.UID)]; known && p.Status.Phase == v1.PodRunning {
			all = append(all, rank.Candidate{Pod: p, Usage: &rank.Usage{Memory: int64(min(n, 1<<62))}})
		}
	}
	return rank.Sort(rank.Rules{}, rank.SignalMemory, all)
}
