package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podworker"
)

var _ local.Agent = (*Agent)(nil)

// Pods lists every wanted pod with its current status, and after them those
// that are no longer wanted and still being terminated.
func (a *Agent) Pods() []*v1.Pod {
	var pods []*v1.Pod
	seen := map[string]bool{}
	for _, p := range a.pods.Pods() {
		p = p.DeepCopy()
		if st, ok := a.statuses.Get(p.UID); ok {
			p.Status = st
		} else if p.Status.Phase == "" {
			p.Status.Phase = v1.PodPending
		}
		seen[string(p.UID)] = true
		pods = append(pods, p)
	}
	for _, w := range a.workers.List() {
		if seen[string(w.UID)] || w.Pod == nil || w.Finished {
			continue
		}
		p := w.Pod.DeepCopy()
		if st, ok := a.statuses.Get(p.UID); ok {
			p.Status = st
		}
		if p.DeletionTimestamp == nil {
			t := metav1.NewTime(w.TerminatingAt)
			p.DeletionTimestamp = &t
		}
		pods = append(pods, p)
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	return pods
}

// Events lists the remembered events of a pod, oldest first.
func (a *Agent) Events(pod *v1.Pod) []v1.Event { return a.events.of(pod.UID) }

// Problems lists the manifests that are not in effect.
func (a *Agent) Problems() []local.Problem {
	var out []local.Problem
	for _, p := range a.pods.Problems() {
		out = append(out, local.Problem{
			Source: p.Source, File: p.File, Document: p.Document, Pod: p.Pod,
			Field: p.Field, Reason: p.Reason, Kept: p.Kept,
		})
	}
	return out
}

// Healthy returns nil, or that the runtime does not answer.
func (a *Agent) Healthy() error { return a.pleg.Healthy() }

// aliveWithin is how long the loop may go without a turn; it turns every
// housekeepingEvery at the latest.
const aliveWithin = 3 * housekeepingEvery

// Alive tells that the agent's own loop turns, whatever the runtime does.
func (a *Agent) Alive() bool {
	return time.Since(time.Unix(0, a.beat.Load())) < aliveWithin
}

// Why tells what the agent does about a pod, and what it waits for.
func (a *Agent) Why(pod *v1.Pod) local.Why {
	why := local.Why{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Phase: string(pod.Status.Phase), Stage: "waiting",
		Containers: containersWhy(&pod.Status),
	}
	w, ok := a.workers.State(pod.UID)
	if ok {
		why.Stage, why.Doing, why.Since = w.Kind.String(), w.Doing, w.Since
		why.NextAt, why.NextReason = w.NextAt, w.NextReason
		why.LastError, why.Failures = w.LastError, w.Failures
	}
	a.mu.Lock()
	rejection, rejected := a.rejected[pod.UID]
	a.mu.Unlock()
	since, deciding := a.decisions.has(pod.UID)
	switch {
	case deciding:
		why.WaitingFor, why.Since = "its devices: their plugins are asked since "+since.Format(time.TimeOnly), since
	case rejected:
		why.WaitingFor, why.NextAt = refusal(rejection), rejection.RetryUntil
	case !ok && a.pleg.Healthy() != nil:
		why.WaitingFor = "the container runtime: " + a.pleg.Healthy().Error()
	case !ok:
		why.WaitingFor = "the agent to take it up"
	default:
		why.WaitingFor = a.waitingFor(pod, w)
	}
	return why
}

// waitingFor says in one line what a pod with a worker waits for.
func (a *Agent) waitingFor(pod *v1.Pod, w podworker.Status) string {
	for _, h := range a.pleg.Hung() {
		if h.UID == pod.UID {
			return fmt.Sprintf("the container runtime to tell of this pod; it has not answered since %s", h.Since.Format(time.TimeOnly))
		}
	}
	if pulls := a.images.Waiting(pod.UID); len(pulls) > 0 {
		return pullWhy(pulls[0], time.Now())
	}
	if line := a.volumesWhy(pod.UID); line != "" {
		return line
	}
	if w.Doing != "" {
		return w.Doing
	}
	if w.WaitingFor != "" {
		return w.WaitingFor
	}
	if w.LastError != "" {
		return "the next try, after: " + w.LastError
	}
	if line := a.evictedWhy(pod); line != "" {
		return line
	}
	if cs := containersWhy(&pod.Status); len(cs) > 0 {
		return fmt.Sprintf("container %s (%s)", cs[0].Name, strings.Join(strings.Fields(cs[0].State+" "+cs[0].Reason), " "))
	}
	for _, c := range a.grants.conditions(pod.UID) {
		return fmt.Sprintf("its resources (%s)", strings.Join(strings.Fields(string(c.Type)+" "+c.Reason+" "+c.Message), " "))
	}
	return "nothing: it is as it should be"
}

// pullWhy says in one line how far a pull is.
func pullWhy(p images.Pull, now time.Time) string {
	what := fmt.Sprintf("image %s from %s", p.Image, p.Registry)
	since := now.Sub(p.Since).Round(time.Second)
	switch p.State {
	case images.Queued:
		return fmt.Sprintf("%s: %d. in the queue, for %v", what, p.Position, since)
	case images.Throttled:
		return fmt.Sprintf("%s: next, as soon as the rate of pulls allows, for %v", what, since)
	case images.HeldBack:
		return fmt.Sprintf("%s: try %d at %s, after: %s", what, p.Try, p.RetryAt.Format(time.TimeOnly), p.LastError)
	}
	if p.Credentials > 1 {
		what += fmt.Sprintf(" with credential %d of %d", p.Credential, p.Credentials)
	}
	return fmt.Sprintf("%s: the runtime pulls it, for %v", what, since)
}

// containersWhy lists the containers that do not simply run, or have ended
// well where they should.
func containersWhy(st *v1.PodStatus) []local.ContainerWhy {
	var out []local.ContainerWhy
	add := func(list []v1.ContainerStatus, init bool) {
		for i := range list {
			c := &list[i]
			switch {
			case c.State.Waiting != nil:
				out = append(out, local.ContainerWhy{Name: c.Name, State: "waiting",
					Reason: c.State.Waiting.Reason, Message: c.State.Waiting.Message})
			case c.State.Terminated != nil && (!init || c.State.Terminated.ExitCode != 0):
				out = append(out, local.ContainerWhy{Name: c.Name,
					State:  fmt.Sprintf("terminated with exit code %d", c.State.Terminated.ExitCode),
					Reason: c.State.Terminated.Reason, Message: c.State.Terminated.Message})
			}
		}
	}
	add(st.InitContainerStatuses, true)
	add(st.ContainerStatuses, false)
	add(st.EphemeralContainerStatuses, false)
	return out
}

// LogPath is the log file of a container's newest instance, or of the one
// before it.
func (a *Agent) LogPath(pod *v1.Pod, container string, previous bool) (string, error) {
	c, err := a.instance(pod, container, previous)
	if err != nil {
		return "", err
	}
	if c.LogPath == "" {
		return "", fmt.Errorf("container %q: the runtime keeps no log file: %w", container, local.ErrNotFound)
	}
	return c.LogPath, nil
}

// Exec prepares a command in a running container.
func (a *Agent) Exec(ctx context.Context, pod *v1.Pod, r local.ExecRequest) (string, error) {
	c, err := a.instance(pod, r.Container, false)
	if err != nil {
		return "", err
	}
	if c.State != observed.Running {
		return "", fmt.Errorf("container %q is %s, not running", r.Container, c.State)
	}
	resp, err := a.cfg.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: c.ID, Cmd: r.Command, Tty: r.TTY, Stdin: r.Stdin,
		Stdout: true, Stderr: !r.TTY, // a terminal has one stream for both
	})
	if err != nil {
		return "", err
	}
	return resp.GetUrl(), nil
}

// instance finds a container's newest instance, or the one before it.
func (a *Agent) instance(pod *v1.Pod, container string, previous bool) (*observed.Container, error) {
	if !slices.Contains(containerNames(pod), container) {
		return nil, fmt.Errorf("container %q is not in pod %s/%s, which has %s: %w", container,
			pod.Namespace, pod.Name, strings.Join(containerNames(pod), ", "), local.ErrNotFound)
	}
	obs, err := a.pleg.Get(pod.UID)
	if err != nil {
		return nil, err
	}
	skip := previous
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.Name == container {
			if !skip {
				return c, nil
			}
			skip = false
		}
	}
	what := "has not been created yet"
	if previous {
		what = "has no earlier instance"
	}
	return nil, errors.Join(fmt.Errorf("container %q %s: %w", container, what, local.ErrNotFound))
}

func containerNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
