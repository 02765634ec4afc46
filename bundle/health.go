package bundle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/callerror"
)

// verdict is the result of one look at the pods on trial.
type verdict int

const (
	waiting verdict = iota
	healthy
	failed
)

// trial decides whether the pods of a bundle are healthy. It reads no clock; the caller passes the
// time to look.
type trial struct {
	rollout  Rollout
	begun    time.Time
	since    time.Time // all pods have been ready from then on; zero: they are not
	restarts int32     // of all containers, at the last look
}

// look returns the verdict at the time now, with the reason: what it waits for, or why it failed.
// wanted are the pods of the bundle, and pods those of the node with their statuses.
func (t *trial) look(now time.Time, wanted, pods []*v1.Pod) (verdict, string) {
	byUID := make(map[types.UID]*v1.Pod, len(pods))
	for _, p := range pods {
		byUID[p.UID] = p
	}
	restarts := int32(0)
	var missing []string
	for _, w := range wanted {
		p := byUID[w.UID]
		if p == nil {
			missing = append(missing, w.Name+" is not known to the agent yet")
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		if p.Status.Phase == v1.PodFailed {
			return failed, "pod " + w.Name + " has failed: " + why(p)
		}
		if p.Status.Phase != v1.PodSucceeded && !isReady(p) {
			missing = append(missing, w.Name+": "+why(p))
		}
	}
	// A container that ends at once is ready for a moment after each start.
	if len(missing) > 0 || restarts != t.restarts {
		t.since = time.Time{}
	} else if t.since.IsZero() {
		t.since = now
	}
	t.restarts = restarts
	text := "all pods are ready"
	if len(missing) > 0 {
		text = firstOf(missing)
	} else if t.since.IsZero() {
		text = "containers restart"
	}
	switch {
	case !t.since.IsZero() && now.Sub(t.since) >= t.rollout.ReadyFor.Duration:
		return healthy, text
	case now.Sub(t.begun) >= t.rollout.HealthyWithin.Duration:
		return failed, fmt.Sprintf("not healthy within %v: %s", t.rollout.HealthyWithin.Duration, text)
	}
	return waiting, text
}

// firstOf joins the first three reasons.
func firstOf(reasons []string) string {
	const most = 3
	if more := len(reasons) - most; more > 0 {
		return strings.Join(reasons[:most], "; ") + fmt.Sprintf("; and %d more pods", more)
	}
	return strings.Join(reasons, "; ")
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// why returns the reason that the status of a pod gives for not being ready.
func why(p *v1.Pod) string {
	cut := func(reason, message string) string {
		const most = 200
		return callerror.Cut(strings.TrimSpace(strings.ReplaceAll(strings.TrimSuffix(reason+": "+message, ": "), "\n", " ")), most)
	}
	if p.Status.Reason != "" || p.Status.Message != "" {
		return cut(p.Status.Reason, p.Status.Message)
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			switch {
			case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
				return cut("container "+c.Name+" waits: "+c.State.Waiting.Reason, c.State.Waiting.Message)
			case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
				return cut(fmt.Sprintf("container %s ended with code %d", c.Name, c.State.Terminated.ExitCode), c.State.Terminated.Message)
			case c.State.Running != nil && !c.Ready && c.RestartCount > 0:
				return fmt.Sprintf("container %s is not ready after %d restarts", c.Name, c.RestartCount)
			case c.State.Running != nil && !c.Ready:
				return fmt.Sprintf("container %s is not ready", c.Name)
			}
		}
	}
	return fmt.Sprintf("phase %s", p.Status.Phase)
}
