package resources

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podruntime"
)

// Synced implements part.SyncWatcher: it follows a resize until it is complete. If the sync
// used an older version of the pod and another resize has come since, the result is ignored.
func (p *Resize) Synced(pod *v1.Pod, res *podruntime.Result, needsResize func() bool) (news bool) {
	if p.Allocated(pod) != pod {
		return false
	}
	if !res.Resizes {
		return p.completed(pod)
	}
	if err := errorOf(res); err != nil {
		return p.failed(pod, err)
	}
	if needsResize() {
		return p.progress(pod, nil)
	}
	p.completed(pod)
	return true
}

// errorOf returns the error of a resize in a sync, or nil.
func errorOf(res *podruntime.Result) error {
	for _, r := range res.Actions {
		if podlife.ReasonOf(r.Err) == podruntime.ReasonResize {
			return r.Err
		}
	}
	return nil
}

// failed records that a resize failed, in an event and the condition. The resize is
// tried again.
func (p *Resize) failed(pod *v1.Pod, err error) (news bool) {
	if news = p.progress(pod, err); news {
		p.host.Event(pod, nil, v1.EventTypeWarning, podruntime.ReasonResize, err.Error())
	}
	return news
}

func (p *Resize) completed(pod *v1.Pod) (news bool) {
	if news = p.endProgress(pod.UID); news {
		p.host.Event(pod, nil, v1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	}
	return news
}

// progress records the progress of a resize; see state.proceed.
func (p *Resize) progress(pod *v1.Pod, err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	return s != nil && p.proceed(s, pod, err)
}

// proceed is state.proceed with metrics. The caller holds p.mu.
func (p *Resize) proceed(s *state, pod *v1.Pod, err error) (news bool) {
	if s.progress == nil {
		p.met.inProgress.Inc()
	}
	return s.proceed(pod, err)
}

// endProgress ends a resize, and reports whether there was one.
func (p *Resize) endProgress(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	return s != nil && p.finish(s)
}

// finish ends a resize, if one is in progress. The caller holds p.mu.
func (p *Resize) finish(s *state) (ended bool) {
	if s.progress == nil {
		return false
	}
	p.met.inProgress.Dec()
	s.progress = nil
	return true
}

// Stopped implements part.Stopper: resizes of the pod end.
func (p *Resize) Stopped(_ context.Context, ref part.Ref) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pods[ref.UID]; s != nil {
		p.endWait(s)
		p.finish(s)
	}
	return nil
}

// Explain implements part.Explainer.
func (p *Resize) Explain(pod *v1.Pod) string {
	for _, c := range p.Conditions(pod.UID) {
		return fmt.Sprintf("its resources (%s)", strings.Join(strings.Fields(string(c.Type)+" "+c.Reason+" "+c.Message), " "))
	}
	if p.unsure(pod.UID) && !p.isRestored() {
		return "its resources (allocation records are being read)"
	}
	return ""
}
