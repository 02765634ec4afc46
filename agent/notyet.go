package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/podworker"
)

const (
	// defaultGrace is a pod's time to end if it does not name one
	// (terminationGracePeriodSeconds).
	defaultGrace = 30 * time.Second
	// graceMargin is what a pod may take to end beyond its time, before nobody
	// waits for what it has.
	graceMargin = 30 * time.Second
)

// orLater lets a pod wait that would not be turned away if pods that are ending
// had ended: what they hold is free soon.
func (a *Agent) orLater(pod *v1.Pod, others []*v1.Pod, r *Rejection) *Rejection {
	if r == nil || r == undecided || r.final || !r.RetryUntil.IsZero() {
		return r
	}
	var until time.Time
	var names []string
	var leaving []types.UID
	for _, w := range a.workers.List() {
		if w.Pod == nil || w.Finished || w.UID == pod.UID || w.Kind == podworker.Sync && a.wanted(w.UID) {
			continue
		}
		leaving, names = append(leaving, w.UID), append(names, w.Namespace+"/"+w.Name)
		if end := endOf(w); end.After(until) {
			until = end
		}
	}
	for _, d := range a.decisions.pending() { // and those that may not come
		if d.pod.UID == pod.UID {
			continue
		}
		leaving, names = append(leaving, d.pod.UID), append(names, d.pod.Namespace+"/"+d.pod.Name+" (or its admission)")
		if end := d.since.Add(decideTimeout + graceMargin); end.After(until) {
			until = end
		}
	}
	if !until.After(time.Now()) {
		return r
	}
	staying := slices.DeleteFunc(slices.Clone(others), func(o *v1.Pod) bool { return slices.Contains(leaving, o.UID) })
	for _, ad := range a.admit {
		if ad.Admit(pod, staying) != nil {
			return r
		}
	}
	if a.placement != nil && !a.placement.fits(pod, leaving) {
		return r
	}
	slices.Sort(names)
	return &Rejection{
		Reason: r.Reason, RetryUntil: until,
		Message: r.Message + "; it waits for the end of " + strings.Join(names, ", "),
	}
}

// endOf is when a pod that is ending should have ended.
func endOf(w podworker.Status) time.Time {
	at := w.TerminatingAt
	if at.IsZero() {
		at = time.Now()
	}
	grace := defaultGrace
	for _, s := range []*int64{w.Pod.Spec.TerminationGracePeriodSeconds, w.Pod.DeletionGracePeriodSeconds} {
		if s != nil {
			grace = time.Duration(*s) * time.Second
		}
	}
	return at.Add(grace + graceMargin)
}

// wait keeps a pod for later, if that is the verdict, and tells whether it was.
// The deadline is the one it was given first.
func (a *Agent) wait(pod *v1.Pod, r Rejection) bool {
	if r.RetryUntil.IsZero() {
		return false
	}
	a.mu.Lock()
	before, known := a.rejected[pod.UID]
	waits := known && !before.RetryUntil.IsZero() && before.Reason == r.Reason
	if waits && r.Reason != reasonDevicesAway { // whose plugin's time counts
		r.RetryUntil = before.RetryUntil
	}
	left := time.Until(r.RetryUntil)
	if left > 0 {
		a.rejected[pod.UID] = r
	}
	a.mu.Unlock()
	switch {
	case left <= 0:
		return false
	case waits && !before.RetryUntil.Equal(r.RetryUntil):
		time.AfterFunc(left, a.requestCleanup)
	case !waits:
		time.AfterFunc(left, a.requestCleanup)
		a.log.Info("pod waits to be admitted", zap.String("pod", pod.Namespace+"/"+pod.Name),
			zap.String("reason", r.Reason), zap.String("message", r.Message), zap.Duration("for", left))
		a.events.Event(pod, v1.EventTypeNormal, "AdmissionWaits", r.Reason+": "+r.Message)
	}
	if !waits || before.Message != r.Message {
		a.statuses.Set(pod, waitingStatus(pod, r))
	}
	return true
}

// waitingStatus is the status of a pod that waits to be admitted.
func waitingStatus(pod *v1.Pod, r Rejection) v1.PodStatus {
	st := podstatus.Of(podstatus.Input{Pod: pod, NeedsSandbox: true})
	st.Phase, st.Reason, st.Message = v1.PodPending, r.Reason, waitingMessage+r.Message
	return st
}

const waitingMessage = "Pod waits to be admitted: "

// retryWaiting asks again for the pods that wait to be admitted, but for those
// to be skipped.
func (a *Agent) retryWaiting(skip func(types.UID) bool) {
	a.mu.Lock()
	none := true
	for _, r := range a.rejected {
		none = none && r.RetryUntil.IsZero()
	}
	a.mu.Unlock()
	if none {
		return
	}
	for _, p := range a.pods.Pods() {
		a.mu.Lock()
		waits := !a.rejected[p.UID].RetryUntil.IsZero()
		a.mu.Unlock()
		if waits && p.DeletionTimestamp == nil && (skip == nil || !skip(p.UID)) {
			a.add(p)
		}
	}
}

// refusal says in one line what becomes of a pod that was not admitted.
func refusal(r Rejection) string {
	if r.RetryUntil.IsZero() {
		return "nothing: the node turned the pod away (" + r.Reason + ": " + r.Message + "); change its manifest or the node"
	}
	if r.Reason == reasonDevicesAway {
		return r.Message
	}
	return fmt.Sprintf("room on the node, until %s (%s: %s)", r.RetryUntil.Format(time.TimeOnly), r.Reason, r.Message)
}
