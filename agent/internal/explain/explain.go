// Package explain explains the state of a pod in sentences: the state, the cause with its evidence,
// what the agent tries next, and what to do.
//
// [Pod] is a pure function of [Facts]. "agent why", the node's page, "agent describe" and the local
// API show its result, so that they cannot contradict each other.
package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/volumemgr"
)

// Facts is the input of [Pod], which does not change it.
type Facts struct {
	Now time.Time
	// Pod is the pod with its current status.
	Pod *v1.Pod
	// Cause says why the pod ended, is being terminated or waits to be admitted, if its status
	// shows that.
	Cause podlife.Cause
	// Worker is the state of the pod's worker. It is nil if the pod has no worker.
	Worker *podworker.Status
	// Answer is the last rejection of a pod that is not admitted. Reserving is the time at which
	// its reservation began. It is zero if no reservation is running.
	Answer    *part.Rejection
	Reserving time.Time
	// Shortages has a line for each resource of which the node has too little for the
	// pod.
	Shortages []string
	// RuntimeError says why the container runtime does not answer at all. Hung is the time since
	// which it has not answered about this pod.
	RuntimeError error
	Hung         time.Time
	Pulls        []images.Pull
	Volumes      []volumemgr.Status
	Observed     *observed.Pod
	// Parts says what the pod waits for, according to a part of the agent.
	Parts string
	// Manifest is the path of the pod's file. It is "" if the pod is not from a file. Problems
	// are the errors in the file.
	Manifest string
	Problems []local.Problem
	// Events are the events of the pod, oldest first.
	Events []v1.Event
	// EndedFor returns the reason why the agent stopped the container with that ID in the
	// runtime. It returns "" if the agent did not stop it. If EndedFor is nil, the reasons are
	// unknown.
	EndedFor func(id string) podlife.Kind
	// LastWords returns the last log line of a container's newest instance or, if previous is
	// true, of the one before it. It returns "" if there is none. If LastWords is nil, logs are
	// unknown.
	LastWords func(container string, previous bool) string
	// Holder describes the process that listens on a TCP port of the node. It returns "" if there
	// is none. If Holder is nil, the processes are unknown.
	Holder func(port int32) string
}

// States of pods. A sentence has the pod's name before the state.
const (
	runs        = "runs"
	runsWithout = "runs, without an ephemeral container"
	notReady    = "runs, but is not ready"
	notUp       = "is not up yet"
	doesntRun   = "does not run"
	isEnding    = "is ending"
	hasEnded    = "has ended"
)

// recently is how long a past problem of a running pod is reported.
const recently = 10 * time.Minute

// explanation is an explanation under construction.
type explanation struct {
	*Facts
	why local.Why
}

// Pod explains a pod. The rules are tried in order, and the first one that finds a cause gives the
// result. A rule returns false if it does not apply to the pod or finds nothing.
func Pod(f *Facts) local.Why {
	p := f.Pod
	e := &explanation{Facts: f, why: local.Why{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Phase: string(p.Status.Phase), Stage: "waiting", State: stateOf(p), Manifest: f.Manifest,
	}}
	if w := f.Worker; w != nil {
		e.why.Stage, e.why.Doing, e.why.Since = w.Kind.String(), w.Doing, w.Since
		e.why.NextAt, e.why.NextReason = w.NextAt, w.NextReason
		e.why.LastError, e.why.Failures = w.LastError, w.Failures
	}
	for _, rule := range []func(*explanation) bool{
		(*explanation).ending, (*explanation).ended, (*explanation).admission, (*explanation).runtime, (*explanation).image, (*explanation).volume,
		(*explanation).surplus, (*explanation).containers, (*explanation).work, (*explanation).gates, (*explanation).conditions, (*explanation).manifest, (*explanation).past,
	} {
		if rule(e) {
			break
		}
	}
	e.why.Good = e.why.Cause == ""
	return e.why
}

// stateOf returns the state that the status alone shows.
func stateOf(p *v1.Pod) string {
	switch {
	case podmeta.IsTerminal(p.Status.Phase):
		return hasEnded
	case ready(p):
		return runs
	case p.Status.Phase == v1.PodRunning:
		return notReady
	default:
		return notUp
	}
}

// because sets the cause. It returns true.
func (e *explanation) because(state, cause string, args ...any) bool {
	e.why.State, e.why.Cause = state, oneLine(fmt.Sprintf(cause, args...))
	return true
}

// waits sets what a pod waits for. It returns true.
func (e *explanation) waits(state, what string) bool {
	e.why.WaitingFor = what
	return e.because(state, "it waits for %s", what)
}

func (e *explanation) evidence(line string, args ...any) {
	e.why.Evidence = append(e.why.Evidence, oneLine(fmt.Sprintf(line, args...)))
}

func (e *explanation) do(line string, args ...any) {
	e.why.Do = append(e.why.Do, oneLine(fmt.Sprintf(line, args...)))
}

// edit adds the advice to change a field of the pod. If alternative is not "", the advice
// continues with "or" and this text.
func (e *explanation) edit(field, alternative string) {
	if alternative != "" {
		alternative = ", or " + alternative
	}
	if e.Manifest != "" {
		e.do("change %s in %s (it takes effect once saved)%s", field, e.Manifest, alternative)
		return
	}
	e.do("change %s in the pod's manifest%s", field, alternative)
}

// ending explains a terminating pod.
func (e *explanation) ending() bool {
	w := e.Worker
	if e.Pod.DeletionTimestamp == nil && (w == nil || w.Kind != podworker.Terminating) {
		return false
	}
	why := "its end was asked for"
	if c := e.Cause; c.Kind != "" || c.Reason != "" {
		why = e.causeOf(c)
	}
	if w == nil {
		return e.because(isEnding, "%s", why)
	}
	if !w.TerminatingAt.IsZero() {
		why += " at " + clock(w.TerminatingAt)
	}
	if w.Kind == podworker.Terminated {
		e.because(isEnding, "%s; its containers have ended, and what it had on the node is being removed", why)
	} else if w.EndsBy.IsZero() {
		e.because(isEnding, "%s; its containers are being stopped", why)
	} else {
		grace := w.EndsBy.Sub(w.TerminatingAt).Round(time.Second)
		e.because(isEnding, "%s; its containers have until %s to end (%s of grace), and are killed then", why, clock(w.EndsBy), spell(grace))
	}
	e.why.WaitingFor = cmp.Or(e.hung(), e.volumeLine(), w.WaitingFor, w.Doing, failedLine(w), e.Parts)
	if e.why.WaitingFor != "" && e.why.WaitingFor != w.Doing {
		e.evidence("it waits for %s", e.why.WaitingFor)
	}
	return true
}

// ended explains a pod that has ended.
func (e *explanation) ended() bool {
	st := &e.Pod.Status
	if !podmeta.IsTerminal(st.Phase) || e.Answer != nil {
		return false
	}
	if st.Phase == v1.PodSucceeded && e.Parts == "" {
		e.why.State = "has ended with success"
		return true
	}
	if c := e.Cause; c.Kind != "" || c.Reason != "" {
		e.because(hasEnded, "%s", e.causeOf(c))
		e.advise(c)
	} else if !e.endOfContainers() {
		e.because(hasEnded, "it is %s %s", st.Phase, strings.TrimSpace(st.Reason+" "+st.Message))
	}
	if e.Parts != "" {
		e.why.WaitingFor = e.Parts
		e.evidence("it waits for %s", e.Parts)
	}
	return true
}

// endOfContainers explains the first container that ended with an error, and reports whether there
// is one.
func (e *explanation) endOfContainers() bool {
	return e.each(func(c *container) bool {
		t := c.st.State.Terminated
		if t == nil || t.ExitCode == 0 {
			return false
		}
		e.tellEnd(hasEnded, c, t, false)
		return true
	})
}

// admission explains a pod that is not admitted yet or was rejected.
func (e *explanation) admission() bool {
	switch a := e.Answer; {
	case !e.Reserving.IsZero():
		e.why.Since = e.Reserving
		return e.waits(notUp, cmp.Or(e.Parts, "its resources: they are being reserved since "+clock(e.Reserving)))
	case a != nil && !a.Waits():
		e.because(doesntRun, "the node rejected it: %s", e.rejection(a))
		e.why.WaitingFor = "nothing: the node rejected the pod"
		e.advise(podlife.Cause{Kind: podlife.Rejected, Reason: a.Reason, Message: a.Message})
		return true
	case a != nil && a.Outside:
		e.why.NextAt = a.RetryUntil
		return e.waits(e.why.State, a.Message)
	case a != nil:
		e.why.NextAt = a.RetryUntil
		e.waits(e.why.State, fmt.Sprintf("room on the node, until %s (%s)", clock(a.RetryUntil), e.rejection(a)))
		e.advise(podlife.Cause{Kind: podlife.Waits, Reason: a.Reason, Message: a.Message})
		return true
	case e.Worker != nil:
		return false
	case unscheduled(e.Pod) != "":
		return e.waits(notUp, "a place on the node: "+unscheduled(e.Pod))
	case e.RuntimeError != nil:
		return e.waits(notUp, "the container runtime: "+shown(e.RuntimeError.Error()))
	default:
		return e.waits(notUp, "admission")
	}
}

// rejection returns the reason of a rejection, and adds the shortages as evidence.
func (e *explanation) rejection(a *part.Rejection) string {
	if strings.HasPrefix(a.Reason, "OutOf") && len(e.Shortages) > 0 {
		for _, s := range e.Shortages[1:] {
			e.evidence("it also %s", s)
		}
		return a.Reason + ": it " + e.Shortages[0]
	}
	return a.Reason + ": " + a.Message
}

// hung returns the sentence for a runtime that does not answer about the pod.
func (e *explanation) hung() string {
	if e.Hung.IsZero() {
		return ""
	}
	return fmt.Sprintf("the container runtime to answer about this pod; it has not answered since %s", clock(e.Hung))
}

// runtime explains a pod that waits for the container runtime.
func (e *explanation) runtime() bool {
	if line := e.hung(); line != "" {
		return e.waits(e.why.State, line)
	}
	return false
}

// surplus explains a pod with two running instances of a container or sandbox.
func (e *explanation) surplus() bool {
	if e.Observed == nil {
		return false
	}
	var lines []string
	counted := map[string]int{}
	for _, c := range e.Observed.Surplus() {
		if counted[c.Name]++; counted[c.Name] == 1 {
			lines = append(lines, c.Name)
		}
	}
	for i, name := range lines {
		lines[i] = fmt.Sprintf("container %s (%d)", name, counted[name])
	}
	sandboxes := 0
	for i := range e.Observed.Sandboxes {
		if e.Observed.Sandboxes[i].State == observed.Running {
			sandboxes++
		}
	}
	if sandboxes > 1 {
		lines = append(lines, fmt.Sprintf("sandbox (%d)", sandboxes-1))
	}
	return len(lines) > 0 && e.waits(e.why.State, "the end of surplus instances: "+strings.Join(lines, ", "))
}

// work explains why the pod does not run by what its worker does now, waits for or failed to do. It
// returns false if the worker has nothing of this.
func (e *explanation) work() bool {
	w := e.Worker
	failed := failedLine(w)
	if failed == "" && ready(e.Pod) {
		return e.Parts != "" && e.waits(e.why.State, e.Parts)
	}
	if failed != "" && e.Parts != "" {
		failed = e.Parts + "; " + failed
	}
	line := cmp.Or(w.WaitingFor, failed, e.Parts)
	if line == "" && w.Doing != "" {
		e.why.WaitingFor = w.Doing
		return e.because(e.why.State, "the agent is %s since %s", w.Doing, clock(w.Since))
	}
	if line == "" {
		return false
	}
	if !w.NextAt.IsZero() {
		e.why.Next = "next try"
	}
	if w.WaitingFor == "" && w.LastError != "" && e.Parts == "" {
		e.why.WaitingFor = line
		e.because(e.why.State, "%s", shown(w.LastError))
		if w.Failures > 1 {
			e.evidence("it was tried %d times", w.Failures)
		}
		e.absent(w.LastError)
		return true
	}
	return e.waits(e.why.State, line)
}

// failedLine returns what a pod waits for whose worker failed: the next try, with the error of the
// last one. It returns "" if the worker did not fail.
func failedLine(w *podworker.Status) string {
	if w == nil || w.LastError == "" {
		return ""
	}
	return "the next try, after: " + shown(w.LastError)
}

// gates explains a pod that is not ready because of its readiness gates.
func (e *explanation) gates() bool {
	for _, g := range e.Pod.Spec.ReadinessGates {
		if c := condition(e.Pod, g.ConditionType); c == nil || c.Status != v1.ConditionTrue {
			e.why.WaitingFor = fmt.Sprintf("condition %s", g.ConditionType)
			return e.because(notReady, "its readiness gate %s is not met: somebody else has to set this condition to True", g.ConditionType)
		}
	}
	return false
}

// conditions explains a pod that is not ready, if no other rule found a cause.
func (e *explanation) conditions() bool {
	if ready(e.Pod) {
		return false
	}
	what := "its containers"
	if c := condition(e.Pod, v1.PodReady); c != nil && c.Message != "" {
		what = c.Message
	}
	return e.waits(e.why.State, what)
}

// manifest explains a pod that runs an earlier version than its file has.
func (e *explanation) manifest() bool {
	for _, p := range e.Problems {
		e.because(runs, "%s has a mistake, so that the version before it runs: %s", p.Place(), p.Text())
		e.do("correct %s (agent check -f FILE checks it)", p.Place())
		e.why.NextAt = time.Time{} // the pod's next sync has nothing to do with the file
		return true
	}
	return false
}

// past explains recent problems of a pod that runs again.
func (e *explanation) past() bool {
	if e.evictions() {
		return true
	}
	return e.each(func(c *container) bool {
		t := c.st.LastTerminationState.Terminated
		if t == nil || e.Now.Sub(t.FinishedAt.Time) > recently || c.st.RestartCount == 0 {
			return false
		}
		e.tellEnd("runs again", c, t, true)
		return true
	})
}

// evictions explains recent evictions of a pod that runs again.
func (e *explanation) evictions() bool {
	var last *v1.Event
	n, first := int32(0), time.Time{}
	for i := range e.Events {
		ev := &e.Events[i]
		if ev.Reason != podlife.Evicted.Reason() || e.Now.Sub(ev.LastTimestamp.Time) > recently {
			continue
		}
		if last = ev; n == 0 {
			first = ev.FirstTimestamp.Time
		}
		n += ev.Count
	}
	if last == nil {
		return false
	}
	when := "at " + clock(last.LastTimestamp.Time)
	if n > 1 {
		when = times(n, first, e.Now) + ", last " + when
	}
	e.because("runs again", "it was evicted %s: %s", when, last.Message)
	e.advise(podlife.Cause{Kind: podlife.OverLimit})
	return true
}

// unscheduled returns the reason why a pod has no node yet. It returns "" if the pod has a node.
func unscheduled(p *v1.Pod) string {
	if c := condition(p, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

func ready(p *v1.Pod) bool {
	c := condition(p, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

func condition(p *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}
