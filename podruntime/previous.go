package podruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/podlife"
)

// A success that a later look does not show is a failure: without a wait, a runtime that
// contradicts itself would be asked as fast as it answers. This file is about what precedes the
// next attempt.

// checkPreviousSandbox returns an error while the previous sandbox may still run. It also returns an
// error, with the time of the next attempt, if that sandbox vanished or failed soon after it was
// made.
func (s *syncing) checkPreviousSandbox(ctx context.Context) error {
	last := s.m.runs.newest(s.pod.UID, "")
	if last.State != started || s.obs.ObservedAt.Before(last.Since) {
		return nil
	}
	if _, there := shown(s.obs, last.ID); there {
		return s.countSandboxFailure(&last, false, fmt.Errorf("sandbox %s was not ready soon after its creation", last.ID))
	}
	// The list may have lost a sandbox that is there: the runtime is asked about
	// the very ID before another takes its place.
	st, err := s.m.rt.PodSandboxStatus(ctx, last.ID, false)
	gone := cri.IsNotFound(err)
	// No answer is no proof: a second sandbox beside a running one would have
	// the pod twice.
	if err != nil && !gone {
		return fmt.Errorf("sandbox %s is not in the runtime's list: %w", last.ID, err)
	}
	runs := !gone && st.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	if runs {
		err = fmt.Errorf("sandbox %s is ready, but the runtime does not list it", last.ID)
	} else {
		err = fmt.Errorf("sandbox %s is gone although its creation succeeded", last.ID)
	}
	if err := s.countSandboxFailure(&last, runs, err); err != nil {
		return err
	}
	// Also what it says it does not have: no copies are left behind.
	return errors.Join(found(s.m.rt.StopPodSandbox(ctx, last.ID)), found(s.m.rt.RemovePodSandbox(ctx, last.ID)))
}

// countSandboxFailure counts a failure of the latest sandbox, whose run is last. It returns err with
// the time of the next attempt, or nil if the next attempt may be made now. The failure of a
// sandbox is counted once. If runs is set, the runtime says that the sandbox is ready, and every
// call is counted.
func (s *syncing) countSandboxFailure(last *run, runs bool, err error) error {
	if !runs && !last.Next.IsZero() {
		return nil // it has waited for this
	}
	why := podlife.Cause{Kind: podlife.SandboxFailed, Message: err.Error()}
	err = s.countFailure(last, runs, as(podlife.SandboxFailed, fmt.Errorf("%w: %w", ErrCreateSandbox, err)))
	if err != nil {
		s.m.causeEvent(s.pod, "", why)
	}
	return err
}

// countFailure calls [run.countFailure] for the run with last's ID and returns the result. If it is
// an error, err becomes the run's Err.
func (s *syncing) countFailure(last *run, always bool, err error) (wait error) {
	s.m.runs.see(s.pod.UID, func(p *podRuns) {
		if r := p.byID(last.ID); r != nil {
			if wait = r.countFailure(always, err, time.Now()); wait != nil {
				r.Err = err
			}
		}
	})
	return wait
}

// found returns nil if err is NotFound, and otherwise err. The stop or removal of an object that
// does not exist has not failed.
func found(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// mayStop returns an error while the next attempt to stop an instance has to wait. The wait begins
// when the runtime confirms a stop and the instance still runs afterwards. The error calls the
// instance label.
func (s *syncing) mayStop(id, label string) (err error) {
	if slices.Contains(s.broken, id) {
		s.m.runs.see(s.pod.UID, func(p *podRuns) { err = p.mayStop(id, label, time.Now()) })
	}
	return err
}

// checkPrevious returns an error while the previous instance of a container may still run. It also
// returns an error, with the time of the next attempt, if that instance vanished or did not run
// although its start succeeded.
func (s *syncing) checkPrevious(ctx context.Context, c *v1.Container) error {
	last := s.m.runs.newest(s.pod.UID, c.Name)
	if last.State != started || !slices.Contains(s.broken, last.ID) {
		return nil // how soon the next may follow is for the crash-loop back-off
	}
	s.mu.Lock()
	// Other containers of the pod start side by side, and change the observation.
	state, there := shown(s.obs, last.ID)
	s.mu.Unlock()
	if there {
		// It is listed, and neither runs nor has ended: a start that did not take
		// place.
		return s.countContainerFailure(c, &last, false, fmt.Errorf("container %s is %s although its start succeeded", last.ID, state))
	}
	st, err := s.m.rt.ContainerStatus(ctx, last.ID, false)
	gone := cri.IsNotFound(err)
	if err != nil && !gone {
		return s.countContainerFailure(c, &last, true, fmt.Errorf("container %s is not in the runtime's list: %w", last.ID, err))
	}
	if !gone && st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return s.countContainerFailure(c, &last, true, fmt.Errorf("container %s runs, but the runtime does not list it", last.ID))
	}
	err = s.countContainerFailure(c, &last, false, fmt.Errorf("container %s is gone although its start succeeded", last.ID))
	if err != nil {
		return err
	}
	// Also what the runtime says it does not have: a copy that comes back would
	// run beside the next instance.
	if err := s.m.discard(ctx, s.pod.UID, last.ID); err != nil {
		return fmt.Errorf("remove container %s, which is not in the runtime's list: %w", last.ID, err)
	}
	return nil
}

// countContainerFailure counts a failure of a container and returns err with its back-off. The
// failure of an instance is counted once; for a further one countContainerFailure returns nil. If
// always is set, every call is counted.
func (s *syncing) countContainerFailure(c *v1.Container, last *run, always bool, err error) error {
	if !always && !last.Next.IsZero() {
		return nil
	}
	err = s.countFailure(last, always, as(podlife.RunFailed, err))
	if err != nil {
		// The event has the container's name in place of the ID: events of all
		// instances are one, and are counted instead of listed.
		s.m.causeEvent(s.pod, c.Name, podlife.Cause{Kind: podlife.RunFailed, Message: strings.ReplaceAll(callerror.Shown(err), last.ID, c.Name)})
	}
	return err
}
