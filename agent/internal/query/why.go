package query

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/volumemgr"
)

// Why returns the agent's current work on a pod, and the reason why the pod waits.
func (q *Query) Why(pod *v1.Pod) local.Why {
	why := local.Why{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Phase: string(pod.Status.Phase), Stage: "waiting",
		Containers: containersWhy(&pod.Status),
	}
	w, ok := q.Workers.State(pod.UID)
	if ok {
		why.Stage, why.Doing, why.Since = w.Kind.String(), w.Doing, w.Since
		why.NextAt, why.NextReason = w.NextAt, w.NextReason
		why.LastError, why.Failures = w.LastError, w.Failures
	}
	answer, reserving := q.Admission(pod.UID)
	switch {
	case !reserving.IsZero():
		why.WaitingFor, why.Since = cmp.Or(q.Explain(pod), "its resources: they are being reserved since "+reserving.Format(time.TimeOnly)), reserving
	case answer != nil:
		why.WaitingFor, why.NextAt = refusal(answer), answer.RetryUntil
	case !ok && q.Runtime.Healthy() != nil:
		why.WaitingFor = "the container runtime: " + q.Runtime.Healthy().Error()
	case !ok:
		why.WaitingFor = "admission"
	default:
		why.WaitingFor = q.waitingFor(pod, w)
	}
	return why
}

// waitingFor returns in one line what a pod with a worker waits for.
func (q *Query) waitingFor(pod *v1.Pod, w podworker.Status) string {
	for _, h := range q.Runtime.Hung() {
		if h.UID == pod.UID {
			return fmt.Sprintf("the container runtime to answer about this pod; it has not answered since %s", h.Since.Format(time.TimeOnly))
		}
	}
	if pulls := q.Images.Waiting(pod.UID); len(pulls) > 0 {
		return pullWhy(pulls[0], time.Now())
	}
	lastError := ""
	if w.LastError != "" {
		lastError = "the next try, after: " + w.LastError
		if part := q.Explain(pod); part != "" {
			lastError = part + "; " + lastError
		}
	}
	if line := cmp.Or(q.volumesAnd(pod), w.Doing, w.WaitingFor, surplusWhy(q.Runtime.View(pod.UID).Pod), lastError, q.Explain(pod)); line != "" {
		return line
	}
	if cs := containersWhy(&pod.Status); len(cs) > 0 {
		return fmt.Sprintf("container %s (%s)", cs[0].Name, strings.Join(strings.Fields(cs[0].State+" "+cs[0].Reason), " "))
	}
	return "nothing: it is as it should be"
}

// volumesAnd returns what the volumes of a pod wait for, with what a part knows of it.
func (q *Query) volumesAnd(pod *v1.Pod) string {
	line := q.volumesWhy(pod.UID)
	if line == "" {
		return ""
	}
	if more := q.Explain(pod); more != "" {
		line += "; " + more
	}
	return line
}

// surplusWhy returns in one line what of a pod runs more than once.
func surplusWhy(obs *observed.Pod) string {
	var lines []string
	counted := map[string]int{}
	for _, c := range obs.Surplus() {
		if counted[c.Name]++; counted[c.Name] == 1 {
			lines = append(lines, c.Name)
		}
	}
	for i, name := range lines {
		lines[i] = fmt.Sprintf("container %s (%d)", name, counted[name])
	}
	ready := 0
	for i := range obs.Sandboxes {
		if obs.Sandboxes[i].State == observed.Running {
			ready++
		}
	}
	if ready > 1 {
		lines = append(lines, fmt.Sprintf("sandbox (%d)", ready-1))
	}
	if len(lines) == 0 {
		return ""
	}
	return "the end of surplus instances: " + strings.Join(lines, ", ")
}

// pullWhy returns in one line how far a pull is.
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

// containersWhy lists the containers that wait or have terminated, except for init containers
// that exited with 0.
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

// refusal returns in one line what a pod that was not admitted waits for.
func refusal(r *part.Rejection) string {
	switch {
	case !r.Waits():
		return "nothing: the node rejected the pod (" + r.Reason + ": " + r.Message + "); change its manifest or the node"
	case r.Outside:
		return r.Message
	}
	return fmt.Sprintf("room on the node, until %s (%s: %s)", r.RetryUntil.Format(time.TimeOnly), r.Reason, r.Message)
}

// volumesWhy returns in one line which volumes a pod waits for.
func (q *Query) volumesWhy(uid types.UID) string {
	v, ok := q.Volumes.(VolumeExplainer)
	if !ok {
		return ""
	}
	for _, s := range v.Why(uid) {
		if s.State == volumemgr.StateMounted && s.Failures == 0 || len(s.Names) == 0 {
			continue
		}
		line := fmt.Sprintf("volume %s (%s): %s since %s", strings.Join(s.Names, ", "), s.Plugin, s.State, s.Since.Format(time.TimeOnly))
		if s.Hung {
			line += ", and it hangs"
		}
		if s.Failures > 0 {
			line += fmt.Sprintf("; failed %d times, first with: %s", s.Failures, s.First)
			if s.Last != s.First {
				line += "; last with: " + s.Last
			}
		}
		if !s.Next.IsZero() {
			line += "; next try at " + s.Next.Format(time.TimeOnly)
		}
		return line
	}
	return ""
}
