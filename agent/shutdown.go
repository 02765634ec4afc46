package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// Shutdown says how pods end when the machine goes down. The zero value of each
// field but Machine means the default named beside it.
type Shutdown struct {
	// Requested is the time of all pods together, Critical the part of it that
	// pods of the system have; 0: shutdowns are not handled.
	Requested, Critical time.Duration
	// Groups take the place of both; none.
	Groups []shutdown.Group
	// PassOn gives time that a group did not need to the next; false.
	PassOn bool
	// Machine tells when the machine goes down; that of package logind, or of
	// shutdown.OnSignal. It is required.
	Machine shutdown.Machine
	// Changed is told, beside the agent, that the machine is about to go down,
	// or not after all; nobody.
	Changed func(down bool)
}

// newShutdown makes what ends pods in order; nothing if it is not asked for.
func (a *Agent) newShutdown() error {
	s := a.cfg.Shutdown
	if s == nil {
		return nil
	}
	var err error
	a.shutdown, err = shutdown.New(shutdown.Config{
		Requested: s.Requested, Critical: s.Critical, Groups: s.Groups, PassOn: s.PassOn,
		Machine: s.Machine, Pods: shutdownPods{a}, Killer: shutdownPods{a}, Volumes: shutdownPods{a},
		State: &lazyStore{dir: filepath.Join(a.cfg.RootDir, "shutdown"), log: a.cfg.Log.Named("shutdown")},
		Event: func(reason, message string) { a.nodeEvents.Event(v1.EventTypeNormal, reason, message) },
		Changed: func(down bool) {
			a.requestCleanup() // what was ended for a shutdown that is called off begins again
			if s.Changed != nil {
				s.Changed(down)
			}
		},
		Log: a.cfg.Log.Named("shutdown"), Metrics: a.cfg.Metrics,
	})
	return err
}

func (a *Agent) runShutdown(ctx context.Context) error {
	if a.shutdown == nil {
		return nil
	}
	return a.shutdown.Run(ctx)
}

// restoreShutdown takes up what an agent before this one has seen.
func (a *Agent) restoreShutdown() {
	if a.shutdown != nil {
		a.logged("it is not known whether the machine is going down", a.shutdown.Restore())
	}
}

// ShuttingDown returns shutdown.ErrShuttingDown while the machine is about to
// go down, which makes the node not ready.
func (a *Agent) ShuttingDown() error {
	if a.shutdown == nil {
		return nil
	}
	return a.shutdown.Err()
}

// leaving is the Admitter that turns every pod away while the machine goes
// down.
type leaving struct{ *Agent }

// Admit implements Admitter.
func (l leaving) Admit(*v1.Pod, []*v1.Pod) *Rejection {
	if l.shutdown == nil {
		return nil
	}
	if reason, message, ok := l.shutdown.Admit(); !ok {
		return &Rejection{Reason: reason, Message: message}
	}
	return nil
}

// shutdownPods are the agent's pods as package shutdown knows them.
type shutdownPods struct{ *Agent }

// takenUpWithin bounds the wait for pods of sources that have not spoken yet when
// the machine goes down; those that have are taken up in a tenth of a second.
const takenUpWithin = 2 * time.Second

// Active implements shutdown.Pods. An agent that has just begun takes up what
// runs first: the machine may go down at any time.
func (s shutdownPods) Active() []*v1.Pod {
	s.takenUp.Do(func() {
		late := time.NewTimer(takenUpWithin)
		defer late.Stop()
		select {
		case <-s.settled:
		case <-late.C:
		}
	})
	return s.activePods(&v1.Pod{})
}

// Kill implements shutdown.Killer.
func (s shutdownPods) Kill(ctx context.Context, pod *v1.Pod, grace int64, status func(*v1.PodStatus)) error {
	return s.end(ctx, pod, grace, false, status)
}

// unmountedEvery is how often it is looked whether volumes are gone, during the
// seconds in which a machine goes down.
const unmountedEvery = 100 * time.Millisecond

// WaitUnmounted implements shutdown.Volumes: a pod's worker has finished when
// its volumes are gone.
func (s shutdownPods) WaitUnmounted(ctx context.Context, pods []*v1.Pod) error {
	tick := time.NewTicker(unmountedEvery)
	defer tick.Stop()
	for {
		var left []string
		for _, p := range pods {
			if w, ok := s.workers.State(p.UID); ok && !w.Finished {
				left = append(left, p.Namespace+"/"+p.Name)
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New("of "+strings.Join(left, ", ")))
		case <-tick.C:
		}
	}
}

// beginsAgain tells of a static pod that ended because the machine was to go
// down, which it has done since, or has not done after all. Nobody else would
// make another one of it.
func (a *Agent) beginsAgain(pod *v1.Pod, st *v1.PodStatus) bool {
	return podmeta.IsStatic(pod) && st.Phase == v1.PodFailed && st.Reason == shutdown.ReasonTerminated && a.ShuttingDown() == nil
}

// cameTooLate tells of a static pod that was turned away for a shutdown.
func (a *Agent) cameTooLate(pod *v1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return podmeta.IsStatic(pod) && a.rejected[pod.UID].Reason == shutdown.ReasonNotAdmitted
}

// beginAgain starts the pods that ended, or were turned away, for a shutdown
// that was called off, or that was only remembered.
func (a *Agent) beginAgain(desired []*v1.Pod) {
	if a.ShuttingDown() != nil || a.shutdown == nil {
		return
	}
	for _, p := range desired {
		if a.cameTooLate(p) {
			a.add(p)
			continue
		}
		st, ok := a.statuses.Get(p.UID)
		if ok && podmeta.IsStatic(p) && wasRejected(&st) && st.Reason == shutdown.ReasonNotAdmitted && a.ShuttingDown() == nil {
			a.add(p) // it came while the machine seemed to go down
			continue
		}
		if w, known := a.workers.State(p.UID); !ok || !a.beginsAgain(p, &st) || known && !w.Finished {
			continue
		}
		a.log.Info("the machine stays up: pod begins again", zap.String("pod", p.Namespace+"/"+p.Name))
		a.statuses.Forget(p.UID)
		a.setAdmitted(p.UID)
		a.workers.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: a.grants.of(p), Start: time.Now()})
	}
}
