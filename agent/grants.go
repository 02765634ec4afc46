package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podruntime"
)

// grants remembers what resources pods were granted. That may be other than
// what they ask for while a resize waits (KEP-1287). It is written down from a
// pod's first resize on; before it, a pod has what its containers were made
// with.
type grants struct {
	store *lazyStore
	log   *zap.Logger
	met   *metrics

	mu   sync.Mutex
	pods map[types.UID]*grant
}

// grant is what is known of one pod.
type grant struct {
	asks      *v1.Pod // the newest version
	resources granted
	known     bool // resources are known; until then they are what it asked first
	queued    bool // a decision on what it asks is still to come
	pending   *v1.PodCondition
	progress  *v1.PodCondition
	since     time.Time // pending is
}

// granted is what is kept of a pod on disk.
type granted struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

func newGrants(rootDir string, log *zap.Logger, met *metrics) *grants {
	return &grants{
		store: &lazyStore{dir: filepath.Join(rootDir, "grants"), log: log},
		log:   log, met: met, pods: map[types.UID]*grant{},
	}
}

// grantedOf are the resources that a pod's spec has.
func grantedOf(pod *v1.Pod) granted {
	g := granted{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			g.Containers[list[i].Name] = list[i].Resources
		}
	}
	return g
}

// madeWith are the resources that a pod's running containers were made with;
// of others, those of the spec. known tells that there are any.
func madeWith(pod *v1.Pod, obs *observed.Pod) (g granted, known bool) {
	g = grantedOf(pod)
	for name := range g.Containers {
		o := obs.Newest(name)
		if o == nil || o.State != observed.Running {
			continue
		}
		if r, ok := podruntime.MadeWith(o); ok {
			g.Containers[name], known = r, true
		}
	}
	return g, known
}

// of returns pod with these resources: itself, if it has them already. A
// container that is not among them is new, and has what it asks for.
func (g granted) of(pod *v1.Pod) *v1.Pod {
	out := pod
	copied := func() *v1.Pod {
		if out == pod {
			out = pod.DeepCopy()
		}
		return out
	}
	if !samePodLevel(g.Pod, pod.Spec.Resources) {
		copied().Spec.Resources = g.Pod.DeepCopy()
	}
	each := func(list []v1.Container, of func(*v1.Pod) []v1.Container) {
		for i := range list {
			r, ok := g.Containers[list[i].Name]
			if ok && !sameRequirements(r, list[i].Resources) {
				c := &of(copied())[i]
				c.Resources.Requests, c.Resources.Limits = r.Requests.DeepCopy(), r.Limits.DeepCopy()
			}
		}
	}
	each(pod.Spec.InitContainers, func(p *v1.Pod) []v1.Container { return p.Spec.InitContainers })
	each(pod.Spec.Containers, func(p *v1.Pod) []v1.Container { return p.Spec.Containers })
	return out
}

func samePodLevel(a, b *v1.ResourceRequirements) bool {
	var none v1.ResourceRequirements
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return sameRequirements(*a, *b)
}

func sameRequirements(a, b v1.ResourceRequirements) bool {
	same := func(x, y v1.ResourceList) bool {
		if len(x) != len(y) {
			return false
		}
		for name, p := range x {
			if q, ok := y[name]; !ok || p.Cmp(q) != 0 {
				return false
			}
		}
		return true
	}
	return same(a.Requests, b.Requests) && same(a.Limits, b.Limits)
}

// of returns pod with the resources that it was granted.
func (g *grants) of(pod *v1.Pod) *v1.Pod {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.pods[pod.UID]; e != nil {
		return e.resources.of(pod)
	}
	return pod
}

// recall finds out what an earlier life of the agent granted a pod that this
// one sees for the first time: what it wrote down, or else what the pod's
// containers were made with. Without either, the pod is granted what it asks.
func (g *grants) recall(pod *v1.Pod, obs *observed.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[pod.UID]
	if e == nil {
		e = &grant{resources: grantedOf(pod)}
		g.pods[pod.UID] = e
		if saved, ok := g.read(pod.UID); ok {
			e.resources, e.known = saved, true
		}
	}
	e.asks = pod
	g.learn(e, obs)
}

// learned is recall for a pod that was taken up before it was known what its
// containers were made with. It tells whether there is to be decided now on
// what the pod asks.
func (g *grants) learned(uid types.UID, obs *observed.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[uid]
	return e != nil && !e.known && g.learn(e, obs)
}

func (g *grants) learn(e *grant, obs *observed.Pod) (queued bool) {
	if !e.known {
		for i := range obs.Containers {
			if obs.Containers[i].Name == "" {
				return false // all that is known is that it is there
			}
		}
		e.known = true
		if made, ok := madeWith(e.asks, obs); ok {
			e.resources = made
		}
	}
	e.queued = e.resources.of(e.asks) != e.asks
	return e.queued
}

// queue has what a pod asks be decided on later.
func (g *grants) queue(pod *v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[pod.UID]
	e.asks, e.queued = pod, true
}

// decidable tells that it is known what the pod has.
func (g *grants) decidable(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pods[uid].known
}

// set grants a pod the resources of its newest version.
func (g *grants) set(pod *v1.Pod) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := grantedOf(pod)
	if err := g.write(pod.UID, r); err != nil {
		return err
	}
	e := g.pods[pod.UID]
	e.asks, e.resources, e.queued = pod, r, false
	g.pend(e, nil)
	return nil
}

// wait takes note that a pod waits for what it asks, and tells whether that is
// news.
func (g *grants) wait(pod *v1.Pod, reason, message string) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[pod.UID]
	e.asks, e.queued = pod, false
	c := resizeCondition(pod, v1.PodResizePending, reason, message)
	if old := e.pending; old != nil && old.Reason == c.Reason {
		c.LastTransitionTime = old.LastTransitionTime
		news = old.ObservedGeneration != c.ObservedGeneration
	} else {
		news = true
	}
	if e.pending == nil {
		e.since = time.Now()
		if err := g.write(pod.UID, e.resources); err != nil {
			g.log.Error("what a pod was granted is not written down", zap.String("uid", string(pod.UID)), zap.Error(err))
		}
	}
	g.pend(e, c)
	return news
}

// asked takes note of a pod's newest version, and returns the one before it.
func (g *grants) asked(pod *v1.Pod) (before *v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[pod.UID]
	if e == nil {
		return nil
	}
	before, e.asks = e.asks, pod
	return before
}

// settle ends a pod's wait.
func (g *grants) settle(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.pods[uid]; e != nil {
		e.queued = false
		g.pend(e, nil)
	}
}

// pend sets the condition of a wait, and counts it.
func (g *grants) pend(e *grant, c *v1.PodCondition) {
	count := func(c *v1.PodCondition, n float64) {
		if c != nil {
			g.met.pendingResizes.WithLabelValues(reasonLabel(c.Reason)).Add(n)
		}
	}
	count(e.pending, -1)
	count(c, 1)
	e.pending = c
}

// progress sets what is to be known of a resize under way, and tells whether
// that is news. err is why it does not come to its end.
func (g *grants) progress(pod *v1.Pod, err error) (news bool) {
	c := resizeCondition(pod, v1.PodResizeInProgress, "", "")
	if err != nil {
		c.Reason, c.Message = v1.PodReasonError, err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[pod.UID]
	if e == nil {
		return false
	}
	if e.progress == nil {
		g.met.resizesInProgress.Inc()
	} else {
		c.ObservedGeneration = e.progress.ObservedGeneration
		if e.progress.Reason == c.Reason {
			c.LastTransitionTime = e.progress.LastTransitionTime
		}
	}
	news = e.progress == nil || e.progress.Reason != c.Reason || e.progress.Message != c.Message
	e.progress = c
	return news
}

// finish ends a resize, and tells whether there was one.
func (g *grants) finish(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[uid]
	if e == nil || e.progress == nil {
		return false
	}
	g.met.resizesInProgress.Dec()
	e.progress = nil
	return true
}

func resizeCondition(pod *v1.Pod, t v1.PodConditionType, reason, message string) *v1.PodCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return &v1.PodCondition{
		Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: pod.Generation, LastProbeTime: now, LastTransitionTime: now,
	}
}

// conditions are those of a pod's resizes.
func (g *grants) conditions(uid types.UID) []v1.PodCondition {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.pods[uid]
	if e == nil {
		return nil
	}
	var out []v1.PodCondition
	for _, c := range []*v1.PodCondition{e.pending, e.progress} {
		if c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// waiting are the pods that wait for a decision, or for the node to have more
// room.
func (g *grants) waiting() []waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []waiting
	for _, e := range g.pods {
		if e.known && e.queued || e.pending != nil && e.pending.Reason == v1.PodReasonDeferred {
			out = append(out, waiting{asks: e.asks, has: e.resources.of(e.asks), since: e.since})
		}
	}
	return out
}

// forget drops what is known of pods that are gone.
func (g *grants) forget(known func(types.UID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid, e := range g.pods {
		if known(uid) {
			continue
		}
		g.pend(e, nil)
		if e.progress != nil {
			g.met.resizesInProgress.Dec()
		}
		delete(g.pods, uid)
	}
	keys, err := g.store.Keys()
	if err != nil {
		g.log.Warn("grants cannot be listed", zap.Error(err))
		return
	}
	for _, key := range keys {
		if known(types.UID(key)) {
			continue
		}
		if err := g.store.Delete(key); err != nil {
			g.log.Warn("a grant stays", zap.String("uid", key), zap.Error(err))
		}
	}
}

// read returns what was written down. What cannot be read counts as not
// written: the containers still tell.
func (g *grants) read(uid types.UID) (granted, bool) {
	b, err := g.store.Read(string(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return granted{}, false
	}
	var out granted
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		g.log.Error("what a pod was granted cannot be read", zap.String("uid", string(uid)), zap.Error(err))
		return granted{}, false
	}
	return out, true
}

func (g *grants) write(uid types.UID, r granted) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return g.store.Write(string(uid), b)
}
