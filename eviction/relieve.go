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

// The actions for a threshold that is met: reclaim, then choose pods. They run in the lane's
// goroutine; evictions have their own.

// reclaimAgain is the time until a reclaim that freed too little is repeated. When an eviction
// ends, the reclaim is repeated earlier, since the pod has left something to reclaim.
const reclaimAgain = time.Minute

// hardGrace is the grace period in seconds for hard thresholds and limits (the kubelet's).
const hardGrace = 1

// relieve acts on one threshold: it reclaims, evicts pods if needed, and records the decision.
// evicts reports that it evicts pods. It blocks while it reclaims and reads signals.
func (l *lane) relieve(ctx context.Context, t rank.Threshold, cause string) (evicts bool) {
	w := l.watches[t]
	d := &Decision{
		Time: time.Now(), Cause: cause, Signal: t.Signal, Soft: !t.Hard(), Since: w.since,
		Threshold: t.Value.Of(w.obs.Capacity), Available: w.obs.Available, Capacity: w.obs.Capacity, Need: t.Need(w.obs),
	}
	defer func() { l.m.record(d) }()

	// The pods that are being evicted free enough.
	if coming, running, _ := l.m.underWay(l, t.Signal, d.Time); running > 0 && coming >= d.Need {
		d.Outcome = "waiting for evictions under way"
		return false
	}
	l.m.cfg.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", resourceOf(t.Signal)))
	// Reclaim first: images can be pulled again, but an evicted pod loses its work.
	if !l.reclaim(ctx, t, d) {
		return false
	}
	pods := l.m.cfg.Pods()
	list, err := l.candidates(ctx, pods)
	l.failed("pods", err)
	if err != nil {
		// Some pods have no figures: choose spares them, and another pass follows soon.
		d.Error, l.retry = err.Error(), true
	}
	// Reading all pods takes time, so read the signal again.
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
	// Again, since evictions of other lanes may have begun meanwhile.
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
		// One pass may evict several pods if one does not free enough. The kubelet evicts one
		// and waits.
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

// grace returns the grace period of an evicted pod, in seconds: at a soft threshold the pod's
// own, limited by Config.MaxPodGraceSeconds.
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

// reclaim frees what no pod needs, step by step, and reads the signal after each step. It
// reports whether more is needed.
func (l *lane) reclaim(ctx context.Context, t rank.Threshold, d *Decision) (more bool) {
	steps := l.steps(t.Signal)
	floor := l.floorNow()
	if len(steps) == 0 || !l.reclaimed.IsZero() && time.Since(l.reclaimed) < reclaimAgain && !floor.After(l.reclaimed) {
		return true
	}
	for _, s := range steps {
		before, began := l.watches[t].obs.Available, time.Now()
		err := l.step(ctx, s)
		// Older figures are out of date, even after an error: a part may have been freed.
		l.m.raise(l)
		l.look(ctx)
		w := l.watches[t]
		step := Step{Name: s.name, Took: time.Since(began), Before: before, After: w.obs.Available}
		if err != nil {
			step.Error = err.Error()
			l.m.cfg.Log.Warn("failed to reclaim resources", zap.String("what", s.name), zap.Error(err))
		}
		d.Steps = append(d.Steps, step)
		if !w.acting {
			d.Outcome = "relieved by removing " + s.name
			return false
		}
	}
	l.reclaimed = l.floorNow()
	// The runtime may return cached figures that are a few seconds old.
	if w := l.watches[t]; !w.newerThan(l.reclaimed) {
		d.Outcome, l.retry = "waiting for figures from after the removal", true
		return false
	}
	return true
}

// step is one kind of reclaim, with its name for decisions.
type step struct {
	name string
	do   func(context.Context) error
}

// steps returns the steps that can free space on a signal's filesystem, as in the kubelet:
// images and containers only where they are stored.
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

// step runs one step, within reclaimTimeout.
func (l *lane) step(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	return wrap("remove "+s.name, s.do(ctx))
}

// enforce evicts every pod that exceeds a limit of local storage, and reports whether it evicts
// any.
func (l *lane) enforce(ctx context.Context, cause string) (evicts bool) {
	status := l.m.statusOf(time.Now())
	// Only pods with limits are measured, since that reads directories.
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
