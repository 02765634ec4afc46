// Package shadow records the actions of another node agent, such as a kubelet, and the decisions
// that an agent of this module would make at the same moments. It only reads: the pods from the
// API, and the runtime's state.
//
//	r, err := record.New(record.Config{Dir: "/var/lib/shadow/record", Node: "edge-1"})
//	...
//	go r.Run(ctx)
//	err = shadow.Run(ctx, shadow.Config{Runtime: client, Pods: pods, Record: r.Record})
//
// [record.Follow] compares each decision with what the other agent did next.
//
// # Limits
//
// The runtime reports sandboxes and containers with their times and exit codes. The status of a
// pod shows whether a container has started. This suffices for restarts, crash loops, init
// containers, sidecars, lost sandboxes and ends. It does not suffice for liveness probes, whose
// results no agent publishes: a container that a probe ended looks like a container that was
// killed. It also does not suffice for edited containers, since agents compare them by hashes of
// their own; for failed image pulls and volumes; and for admissions and evictions. "agent fit"
// answers which pods would be admitted.
//
// Tier: beta.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/record"
)

// Config configures Run. Runtime, Pods and Record are required; the zero value of every other field
// means the default named beside it.
type Config struct {
	// Runtime is the runtime of the other agent.
	Runtime cri.ReadRuntime
	// Pods returns the pods of the node with the statuses that the other agent has published. The
	// caller must not change them afterwards. It is called once a second.
	Pods func(ctx context.Context) ([]*v1.Pod, error)
	// Record gets the entries. It must not block.
	Record func(record.Entry)
	// Backoff delays the restarts of containers. The default is [podruntime.DoublingBackoff], the
	// kubelet's policy.
	Backoff podruntime.Backoff

	Log *zap.Logger // if nil, nothing is logged
}

// period is the interval at which the pods and the runtime are read.
const period = time.Second

// Run reads the pods and the runtime once a period until ctx ends, and then returns nil. A failed
// read is repeated after a period. Of failures in a row only the first one is logged.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Runtime == nil || cfg.Pods == nil || cfg.Record == nil {
		return errors.New("shadow: Config.Runtime, Pods and Record are required")
	}
	if cfg.Backoff == nil {
		cfg.Backoff = podruntime.DoublingBackoff{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	s := &shadow{cfg: cfg, reader: cri.NewReader(cfg.Runtime), pods: map[types.UID]*seen{}}
	tick := time.NewTicker(period)
	defer tick.Stop()
	failing := false
	for {
		err := s.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failing {
			cfg.Log.Warn("failed to read pods or containers", zap.Error(err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type shadow struct {
	cfg    Config
	reader *cri.Reader
	pods   map[types.UID]*seen
}

// seen is the state of a pod at the last look.
type seen struct {
	items string    // the runtime's list and the status, as they were at the last decision
	due   time.Time // end of the next wait of a container; zero: none waits
	loops map[string]*loop
}

// loop is the crash loop of a container, without the latest exit.
type loop struct {
	podruntime.CrashLoop
	ended string           // the ID of the instance that ended last
	count int32            // restart count of that instance
	crash podruntime.Crash // exit of that instance
}

// look reads the pods and containers, and records what has changed since the last call.
func (s *shadow) look(ctx context.Context) error {
	pods, err := s.cfg.Pods(ctx)
	if err != nil {
		return fmt.Errorf("read the pods: %w", err)
	}
	listed, err := s.reader.List(ctx)
	if err != nil {
		return fmt.Errorf("list the runtime's containers: %w", err)
	}
	byUID := map[types.UID]observed.Listed{}
	for _, l := range listed {
		byUID[l.UID] = l
	}
	wanted := map[types.UID]bool{}
	var errs []error
	for _, pod := range pods {
		uid := pod.UID
		if podmeta.IsMirror(pod) { // containers of a static pod have the UID of its manifest
			uid = types.UID(pod.Annotations[podmeta.AnnotationMirror])
		}
		wanted[uid] = true
		errs = append(errs, s.lookAt(ctx, uid, pod, byUID[uid]))
	}
	for uid := range s.pods {
		if !wanted[uid] {
			delete(s.pods, uid)
		}
	}
	return errors.Join(errs...)
}

// lookAt records the state of a pod, and decides about its containers if something has changed.
func (s *shadow) lookAt(ctx context.Context, uid types.UID, pod *v1.Pod, listed observed.Listed) error {
	was := s.pods[uid]
	if was == nil {
		was = &seen{loops: map[string]*loop{}}
		s.pods[uid] = was
		s.record(uid, pod, "", record.WantedOf("ADD", pod.Annotations[podmeta.AnnotationSource], pod))
	}
	s.record(uid, pod, "", record.StatusOf(&pod.Status))
	items := itemsOf(pod, listed)
	if items == was.items && (was.due.IsZero() || time.Now().Before(was.due)) {
		return nil
	}
	obs, err := s.reader.Inspect(ctx, uid)
	if err != nil {
		return fmt.Errorf("inspect pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	was.items, was.due = items, time.Time{}
	specs := map[string]*v1.Container{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			specs[list[i].Name] = &list[i]
		}
	}
	for i := range obs.Containers {
		c := &obs.Containers[i]
		s.record(uid, pod, c.Name, record.InstanceOf(c, specs[c.Name]))
	}
	if pod.DeletionTimestamp != nil || podmeta.IsTerminal(pod.Status.Phase) {
		return nil
	}
	k := podlife.Knowledge{
		Pod: pod, Runtime: obs,
		Started: func(id string) observed.Answer { return startedOf(pod, id) },
		Waits: func(c *v1.Container, last *observed.Container) (time.Time, podlife.Kind) {
			until := s.heldUntil(was, pod, c, last)
			if until.IsZero() {
				return until, ""
			}
			if was.due.IsZero() || until.Before(was.due) {
				was.due = until
			}
			return until, podlife.CrashLoop
		},
	}
	_, decision := record.Decide(k)
	decision.Shadow = true
	s.record(uid, pod, "", decision)
	return nil
}

func (s *shadow) record(uid types.UID, pod *v1.Pod, container string, fact record.Fact) {
	s.cfg.Record(record.Entry{Pod: record.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: uid}, Container: container, Fact: fact})
}

// heldUntil returns the time until which the back-off delays the start of a container after its
// instance last. It returns the zero time if there is no delay.
func (s *shadow) heldUntil(was *seen, pod *v1.Pod, c *v1.Container, last *observed.Container) time.Time {
	if last == nil || last.State != observed.Exited {
		return time.Time{}
	}
	l := was.loops[c.Name]
	switch {
	case l == nil:
		l = &loop{CrashLoop: podruntime.AssumedCrashLoop(s.cfg.Backoff, pod, c, last)}
		was.loops[c.Name] = l
	case l.ended != last.ID:
		// The instances between two looks are assumed to have ended like the instance before them.
		for range min(max(last.RestartCount-l.count, 1), maxMissed) {
			l.CrashLoop = l.Next(s.cfg.Backoff, l.crash)
		}
	}
	l.ended, l.count, l.crash = last.ID, last.RestartCount, podruntime.CrashOf(pod, c, last)
	if until := last.FinishedAt.Add(l.Delay(s.cfg.Backoff, l.crash)); time.Now().Before(until) {
		return until
	}
	return time.Time{}
}

// maxMissed limits the counted restarts between two looks. After that many restarts, the delay has
// reached its maximum.
const maxMissed = 64

// itemsOf returns a text that changes with everything in a pod that the decision depends on.
func itemsOf(pod *v1.Pod, listed observed.Listed) string {
	var out []string
	for _, list := range [][]observed.Item{listed.Sandboxes, listed.Containers} {
		for _, i := range list {
			out = append(out, i.ID+" "+i.State.String())
		}
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if st := &list[i]; st.Started != nil && *st.Started {
				out = append(out, st.ContainerID)
			}
		}
	}
	slices.Sort(out) // the runtime's lists have no order
	return fmt.Sprint(pod.Generation, pod.Status.Phase, pod.DeletionTimestamp != nil, out)
}

// startedOf reports whether the status says that a container has started. If it does not, the startup
// probe may still be running.
func startedOf(pod *v1.Pod, id string) observed.Answer {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			// A status has the name of the runtime before the ID: containerd://ID.
			if st := &list[i]; strings.HasSuffix(st.ContainerID, "://"+id) && st.Started != nil && *st.Started {
				return observed.Yes
			}
		}
	}
	return observed.Maybe
}
