package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
)

// What is done about a threshold that is met: free what no pod needs, then choose
// pods. All of it runs on the lane's goroutine; only the ending of pods does not.

// reclaimAgain is how soon reclaiming that did not suffice is tried again,
// unless an eviction has ended since, which leaves something to reclaim.
const reclaimAgain = time.Minute

// hardGrace is the kubelet's, for hard thresholds and limits: a pod gets a
// second.
const hardGrace = 1

// relieve does what it takes for one threshold, and reports whether a pod is
// evicted for it. It blocks for as long as reclaiming and reading take. Whatever it
// comes to is recorded.
func (l *lane) relieve(ctx context.Context, t rank.Threshold, cause string) (evicts bool) {
	w := l.watches[t]
	d := &Decision{
		Time: time.Now(), Cause: cause, Signal: t.Signal, Soft: !t.Hard(), Since: w.since,
		Threshold: t.Value.Of(w.obs.Capacity), Available: w.obs.Available, Capacity: w.obs.Capacity, Need: t.Need(w.obs),
	}
	defer func() { l.m.record(d) }()

	// Before anything is reclaimed or read: what is under way will do.
	if coming, running, _ := l.m.underWay(l, t.Signal, d.Time); running > 0 && coming >= d.Need {
		d.Outcome = "waiting for evictions under way"
		return false
	}
	l.m.cfg.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", resourceOf(t.Signal)))
	// Images can be pulled again; a pod that is ended loses its work.
	if !l.reclaim(ctx, t, d) {
		return false
	}
	pods := l.m.cfg.Pods()
	list, err := l.candidates(ctx, pods)
	l.failed("pods", err)
	if err != nil {
		// Some pods have no figures: choose spares those, and another pass follows
		// soon.
		d.Error, l.retry = err.Error(), true
	}
	// Reading all pods takes time. What counts is what is left by now.
	l.look(ctx)
	if w = l.watches[t]; !w.acting {
		d.Outcome = "recovered before a choice was made"
		return false
	}
	d.Available, d.Capacity, d.Need = w.obs.Available, w.obs.Capacity, t.Need(w.obs)
	if !w.obs.Time.IsZero() {
		l.m.met.age(t.Signal, time.Since(w.obs.Time))
	}
	ranked := rank.Sort(l.rules(), t.Signal, list)
	now := time.Now()
	// Asked again: evictions of other lanes may have begun while this one read.
	coming, running, other := l.m.underWay(l, t.Signal, now)
	verdicts := choose(ranked, situation{
		need: d.Need, coming: coming, running: running, any: running > 0 || other,
		budget: l.m.cfg.Victims, partial: err != nil, classes: t.Signal.Known() && t.Signal.Resource() != rank.ResourcePIDs,
		status: l.m.statusOf(now), critical: l.m.cfg.Critical,
	})
	d.rank(ranked, verdicts)
	for i := range ranked {
		if verdicts[i] != Chosen {
			continue
		}
		evicts = true
		// Several may go in one pass, where one does not free enough. The kubelet
		// ends one and waits.
		l.m.evict(ctx, l, order{
			rules: l.rules(), candidate: ranked[i].Candidate, label: string(t.Signal), grace: l.grace(t, ranked[i].Pod),
			message: lowMessage(t, w.obs, ranked[i].Candidate), kind: podlife.Evicted,
			annotations: annotations(resourceOf(t.Signal), ranked[i].Candidate),
		}, d)
	}
	if d.Outcome = "evicting"; !evicts {
		d.Outcome = "no pod to evict"
	}
	return evicts
}

// grace is the time a pod gets, in seconds. At a soft threshold that is its own,
// within Config.MaxPodGraceSeconds.
func (l *lane) grace(t rank.Threshold, pod *v1.Pod) int64 {
	if t.Hard() {
		return hardGrace
	}
	most, own := l.m.cfg.MaxPodGraceSeconds, podlife.GraceSeconds(pod, podlife.Cause{})
	if most < 0 {
		return own
	}
	return min(most, own)
}

// reclaim frees what no pod needs, step by step, and reports whether that was
// not enough. After each step the figures are read again.
func (l *lane) reclaim(ctx context.Context, t rank.Threshold, d *Decision) (more bool) {
	steps := l.steps(t.Signal)
	floor := l.floorNow()
	if len(steps) == 0 || !l.reclaimed.IsZero() && time.Since(l.reclaimed) < reclaimAgain && !floor.After(l.reclaimed) {
		return true
	}
	for _, s := range steps {
		before, began := l.watches[t].obs.Available, time.Now()
		err := l.step(ctx, s)
		// Figures from before the removal must not end a pod, whether the step
		// failed or not: a part may have been freed.
		l.m.raise(l)
		l.look(ctx)
		w := l.watches[t]
		step := Step{Name: s.name, Took: time.Since(began), Before: before, After: w.obs.Available}
		if err != nil {
			step.Error = err.Error()
			l.m.cfg.Log.Warn("reclaiming failed", zap.String("what", s.name), zap.Error(err))
		}
		d.Steps = append(d.Steps, step)
		if !w.acting {
			d.Outcome = "relieved by removing " + s.name
			return false
		}
	}
	l.reclaimed = l.floorNow()
	// Some figures come from a cache of the runtime's, which is a few seconds old.
	if w := l.watches[t]; !w.newerThan(l.reclaimed) {
		d.Outcome, l.retry = "waiting for figures from after the removal", true
		return false
	}
	return true
}

// step is one thing to reclaim, under the name that decisions show.
type step struct {
	name string
	do   func(context.Context) error
}

// steps are what can be reclaimed of a signal's filesystem, as with the kubelet: on
// a filesystem without images and layers of containers, removing those frees
// nothing.
func (l *lane) steps(s rank.Signal) []step {
	if l.own != nil && l.own.Reclaim != nil {
		return []step{{"what no pod needs", l.own.Reclaim}}
	}
	r := l.m.cfg.Reclaim
	if r == nil || l.condition != v1.NodeDiskPressure {
		return nil
	}
	containers, images := step{"containers", r.Containers}, step{"images", r.Images}
	node := s == rank.SignalNodeFs || s == rank.SignalNodeFsInodes
	image := s == rank.SignalImageFs || s == rank.SignalImageFsInodes
	switch {
	case l.layout == rank.LayoutDedicated && node:
		return nil
	case l.layout == rank.LayoutSplit && image:
		return []step{images}
	case l.layout == rank.LayoutSplit:
		return []step{containers}
	default:
		return []step{containers, images}
	}
}

// step does one, within Config.ReclaimTimeout.
func (l *lane) step(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, l.m.cfg.ReclaimTimeout)
	defer cancel()
	return wrap("remove "+s.name, s.do(ctx))
}

// enforce evicts every pod that exceeds a limit of local storage, and reports
// whether there was one.
func (l *lane) enforce(ctx context.Context, cause string) (evicts bool) {
	status := l.m.statusOf(time.Now())
	// Only pods with limits are measured: that reads directories, at each pass.
	pods := slices.DeleteFunc(slices.Clone(l.m.cfg.Pods()), func(p *v1.Pod) bool {
		return !rank.HasLimits(p) || status(p.UID) != ""
	})
	if len(pods) == 0 {
		return false
	}
	list, err := l.candidates(ctx, pods)
	l.failed("pods", err)
	for _, c := range list {
		v, ok := rank.Violated(c, l.layout == rank.LayoutDedicated)
		if !ok {
			continue
		}
		d := &Decision{
			Time: time.Now(), Cause: cause, Limit: v.Limit, Threshold: v.Max, Available: v.Max - v.Used, Need: v.Used - v.Max,
			Outcome: "evicting",
		}
		r := rank.Of(l.rules(), rank.SignalNodeFs, c)
		verdict := choose([]rank.Ranked{r}, situation{
			budget: 1, status: func(types.UID) Verdict { return "" }, critical: l.m.cfg.Critical,
		})
		d.rank([]rank.Ranked{r}, verdict)
		if verdict[0] != Chosen {
			d.Outcome = "no pod to evict"
			l.m.record(d)
			continue
		}
		evicts = true
		l.m.evict(ctx, l, order{
			rules: l.rules(), candidate: c, label: string(v.Limit), grace: hardGrace, message: limitMessage(v), kind: podlife.OverLimit,
		}, d)
		l.m.record(d)
	}
	return evicts
}
