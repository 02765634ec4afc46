package local

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
)

// PageAgent answers questions about a node. A *local.Client is one.
type PageAgent interface {
	Pods(ctx context.Context) (*v1.PodList, error)
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	Events(ctx context.Context, namespace, name string) (*v1.EventList, error)
	Why(ctx context.Context, namespace, name string) (*Why, error)
	WhyNode(ctx context.Context) (*NodeWhy, error)
	Problems(ctx context.Context) ([]Problem, error)
	Images(ctx context.Context) (*Images, error)
	Summary(ctx context.Context, small bool) (*statsapi.Summary, error)
	Log(ctx context.Context, namespace, name string, o LogOptions) (io.ReadCloser, error)
}

const (
	// MaxPagePods is how many pods a page shows.
	MaxPagePods = 500
	// maxAsked is how many pods are asked about one by one for a page.
	maxAsked = 60
	// atATime is how many questions are asked at the same time.
	atATime = 8
	// answerTime is how long an answer may take.
	answerTime = 5 * time.Second
	maxEvents  = 40
)

// answers are what the agent says for the first page.
type answers struct {
	node     *NodeWhy
	pods     []v1.Pod
	more     int // pods that are left out
	whys     map[string]string
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
	o := &answers{whys: map[string]string{}}
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
	list, err := a.Pods(ctx)
	note(err)
	if err == nil {
		o.pods = list.Items
		slices.SortStableFunc(o.pods, func(a, b v1.Pod) int {
			return cmp.Or(cmp.Compare(settled(&a), settled(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		o.more = max(0, len(o.pods)-MaxPagePods)
		o.pods = first(o.pods, MaxPagePods)
		o.askAboutPods(ctx, a)
	}
	wg.Wait()
	slices.SortStableFunc(o.events, func(a, b v1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	o.events = first(o.events, maxEvents)
	o.next = evictedNext(list, o.summary)
	return o
}

// settled is 1 for a pod that is as it should be; the others are shown first.
func settled(p *v1.Pod) int {
	if p.Status.Phase == v1.PodSucceeded || p.DeletionTimestamp == nil && isReady(p) {
		return 1
	}
	return 0
}

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// askAboutPods finds out what the first pods wait for, and what happened to them. One
// that went meanwhile is left out.
func (o *answers) askAboutPods(ctx context.Context, a PageAgent) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, atATime)
	for i := range first(o.pods, maxAsked) {
		p := &o.pods[i]
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			events, err := a.Events(ctx, p.Namespace, p.Name)
			if err != nil {
				return
			}
			waits := ""
			if settled(p) == 0 {
				if why, err := a.Why(ctx, p.Namespace, p.Name); err == nil {
					waits = waitsFor(why)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			o.events = append(o.events, events.Items...)
			o.whys[p.Namespace+"/"+p.Name] = waits
		})
	}
	wg.Wait()
}

// waitsFor returns in a line what a pod waits for.
func waitsFor(w *Why) string {
	for _, c := range w.Containers {
		if w.WaitingFor == "" && c.Reason != "" {
			return c.Name + ": " + cmp.Or(c.Message, c.Reason)
		}
	}
	return cmp.Or(w.WaitingFor, w.Doing, w.LastError)
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
