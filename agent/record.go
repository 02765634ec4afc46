package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/query"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/record"
	"github.com/nodewright/nodewright/volumemgr"
)

// The facts that the agent passes to the parts that record. Most facts are passed at each sync,
// since a recorder keeps only changes. Without such a part, no fact is computed.

// record passes an entry to the parts that record.
func (a *Agent) record(e record.Entry) {
	hooks.Each(a.guard, a.hooks.Recorders, func(r part.Recorder) { r.Record(e) })
}

// recordOf passes facts about a pod, or one of its containers, to the parts that record.
func (a *Agent) recordOf(pod *v1.Pod, life uint32, container string, fact record.Fact) {
	a.record(record.Entry{Pod: record.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Life: life}, Container: container, Fact: fact})
}

// records reports whether a part records.
func (a *Agent) records() bool { return len(a.hooks.Recorders) > 0 }

// recordWanted records a change of the wanted pods. It is called on the loop.
func (a *Agent) recordWanted(c podmgr.Change) {
	if !a.records() || c.Op == podmgr.Reconcile {
		return
	}
	for _, pod := range c.Pods {
		a.recordOf(pod, 0, "", record.WantedOf(c.Op.String(), c.Source, pod))
	}
}

// recordObserved records the state of a pod's containers, and of its resize.
func (a *Agent) recordObserved(life podlife.Life, pod *v1.Pod, obs *observed.Pod, resize []v1.PodCondition) {
	if !a.records() {
		return
	}
	for i := range obs.Containers {
		c := &obs.Containers[i]
		spec, _, _, _ := podspec.Find(pod, c.Name)
		a.recordOf(pod, life.N, c.Name, record.InstanceOf(c, spec))
	}
	a.recordOf(pod, life.N, "", record.ResizeOf(resize))
}

// recordStatus records a status that is about to be shown, and the health of devices in it.
func (a *Agent) recordStatus(pod *v1.Pod, life uint32, st *v1.PodStatus) {
	if !a.records() {
		return
	}
	a.recordOf(pod, life, "", record.StatusOf(st))
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		for _, s := range c.AllocatedResourcesStatus {
			a.recordOf(pod, life, c.Name, record.DevicesOf(s))
		}
	}
}

// recordVerdict records why a pod ends, waits or is rejected; the zero cause means that it is
// admitted.
func (a *Agent) recordVerdict(pod *v1.Pod, life uint32, why podlife.Cause) {
	if a.records() {
		a.recordOf(pod, life, "", record.VerdictOf(why))
	}
}

// recordProbe records a result of a probe.
func (a *Agent) recordProbe(c probe.Change) {
	if !a.records() {
		return
	}
	check := record.Check{IP: c.IP, Output: c.Streak.Output, Times: c.Streak.Times, Since: c.Streak.Since}
	if spec, _, _, err := podspec.Find(c.Pod, c.Container); err == nil {
		check.Container = spec
		switch c.Type {
		case probe.Startup:
			check.Probe = spec.StartupProbe
		case probe.Readiness:
			check.Probe = spec.ReadinessProbe
		case probe.Liveness:
			check.Probe = spec.LivenessProbe
		}
	}
	a.recordOf(c.Pod, a.life(c.Pod).N, c.Container, record.ProbeOf(c.ContainerID, c.Type.String(), c.Result == probe.Success, check))
}

// deciding returns the function that makes podruntime's decisions and records them; nil if no part
// records.
func (a *Agent) deciding() func(podlife.Life, podlife.Knowledge) podlife.Decision {
	if !a.records() {
		return nil
	}
	return func(life podlife.Life, k podlife.Knowledge) podlife.Decision {
		d, fact := record.Decide(k)
		a.recordOf(k.Pod, life.N, "", fact)
		return d
	}
}

// recordedSyncer records the results of the calls of pod workers.
type recordedSyncer struct{ syncer }

func (a recordedSyncer) SyncPod(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
	begin := time.Now()
	out, err := a.syncer.SyncPod(ctx, w)
	a.recordSync(ctx, w, "syncPod", begin, err)
	return out, err
}

func (a recordedSyncer) SyncTerminatingPod(ctx context.Context, w podworker.Work) error {
	begin := time.Now()
	err := a.syncer.SyncTerminatingPod(ctx, w)
	a.recordSync(ctx, w, "syncTerminatingPod", begin, err)
	return err
}

func (a recordedSyncer) SyncTerminatedPod(ctx context.Context, w podworker.Work) error {
	begin := time.Now()
	err := a.syncer.SyncTerminatedPod(ctx, w)
	a.recordSync(ctx, w, "syncTerminatedPod", begin, err)
	return err
}

// recordSync records the result of a sync, and the volumes that are not mounted if it failed. A sync
// that was interrupted has no result.
func (a recordedSyncer) recordSync(ctx context.Context, w podworker.Work, call string, begin time.Time, err error) {
	if !a.records() || err != nil && ctx.Err() != nil {
		return
	}
	fact := record.SyncOf(err)
	fact.Call, fact.Took = call, time.Since(begin)
	if v, ok := a.volumes.(query.VolumeExplainer); ok && err != nil {
		for _, s := range v.Why(w.Pod.UID) {
			if s.State != volumemgr.StateMounted || s.Failures > 0 {
				fact.Volumes, fact.Hung = append(fact.Volumes, s.Names...), fact.Hung || s.Hung
			}
		}
	}
	a.recordOf(w.Pod, w.Life.N, "", fact)
}

// recordedReader records since when the runtime does not list its pods.
type recordedReader struct {
	pleg.Runtime
	agent *Agent
}

// List implements pleg.Runtime.
func (r recordedReader) List(ctx context.Context) ([]observed.Listed, error) {
	pods, err := r.Runtime.List(ctx)
	if r.agent.records() && !errors.Is(ctx.Err(), context.Canceled) {
		r.agent.record(record.Entry{Fact: &record.Condition{Type: record.RuntimeUnavailable, On: err != nil, Reason: record.WordOf(err)}})
	}
	return pods, err
}

// recordedRuntime records how long the runtime took to create a sandbox.
type recordedRuntime struct {
	*Agent
	podruntime.Runtime
}

// RunPodSandbox implements podruntime.SandboxRuntime.
func (r recordedRuntime) RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	begin := time.Now()
	id, err := r.Runtime.RunPodSandbox(ctx, conf, handler)
	if !r.records() || err != nil && ctx.Err() != nil {
		return id, err
	}
	m := conf.GetMetadata()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid())}}
	r.recordOf(pod, podmeta.LifeIn(conf.GetAnnotations(), cri.AnnotationLife), "", record.SandboxRunOf(id, m.GetAttempt(), time.Since(begin), err))
	return id, err
}

// recordedImages records which images cannot be pulled, and which took long.
type recordedImages struct {
	*Agent
	podruntime.Images
}

// longPull is the duration from which a pull is recorded. A shorter one found the image on the
// node.
const longPull = time.Second

// Ensure implements podruntime.Images.
func (i recordedImages) Ensure(ctx context.Context, r podruntime.ImageRequest) (podspec.ImageFacts, error) {
	begin := time.Now()
	facts, err := i.Images.Ensure(ctx, r)
	if !i.records() || err != nil && ctx.Err() != nil {
		return facts, err
	}
	fact := &record.Image{Image: r.Image, Error: record.WordOf(err)}
	if err != nil {
		fact.Reason = record.Reason(podlife.ReasonOf(err))
	} else if took := time.Since(begin); took >= longPull {
		fact.Took = took.Round(time.Millisecond)
	}
	// The failure before the back-off is recorded already.
	if fact.Reason != string(imageBackOff) {
		i.recordOf(r.Pod, i.life(r.Pod).N, r.Container, fact)
	}
	return facts, err
}

// imageBackOff is the reason of an image whose next pull has to wait.
const imageBackOff = "ImagePullBackOff"

// recordedEvents records the events of the node by their reasons.
type recordedEvents struct {
	*Agent
	mu   sync.Mutex
	last map[string]time.Time
}

// eventPause is how long the same event of the node is not recorded again.
const eventPause = 10 * time.Minute

// Event implements local.EventRecorder. It drops events of pods, since facts have the same
// information.
func (*recordedEvents) Event(*v1.Pod, string, string, string) {}

// NodeEvent implements local.NodeEventRecorder.
func (r *recordedEvents) NodeEvent(_, reason, _ string) {
	if reason = record.Reason(reason); strings.TrimSpace(reason) == "" {
		return
	}
	now := time.Now()
	r.mu.Lock()
	again := now.Sub(r.last[reason]) < eventPause
	if !again {
		r.last[reason] = now
	}
	r.mu.Unlock()
	if !again {
		r.record(record.Entry{Fact: &record.Happened{Reason: reason}})
	}
}

// recordingEvents returns the recorder of the configuration and, if a part records, the recorder
// of the node's events.
func (a *Agent) recordingEvents() local.EventRecorder {
	if !a.records() {
		return a.cfg.Events
	}
	var out local.EventRecorders
	if a.cfg.Events != nil {
		out = append(out, a.cfg.Events)
	}
	return append(out, &recordedEvents{Agent: a, last: map[string]time.Time{}})
}
