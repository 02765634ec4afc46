package hooks

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podruntime"
)

// A pod runs with the resources that a part has allocated to it. Without such a part it runs with
// the requested resources.

// Recall makes the Allocator restore the resources that were allocated to a pod before
// the agent started.
func (h *Hooks) Recall(g *Guard, pod *v1.Pod, obs *observed.Pod) {
	Each(g, h.Allocators, func(a part.Allocator) { a.Recall(pod, obs) })
}

// Learn passes the observed resources of a pod's containers to the parts.
func (h *Hooks) Learn(g *Guard, uid types.UID, obs *observed.Pod) {
	Each(g, h.Allocators, func(a part.Allocator) { a.Learn(uid, obs) })
}

// Allocated returns the version of a pod to run.
func (h *Hooks) Allocated(g *Guard, pod *v1.Pod) *v1.Pod {
	Each(g, h.Allocators, func(a part.Allocator) { pod = a.Allocated(pod) })
	return pod
}

// Reallocated passes a new version of a pod to the parts, and returns the version to run.
func (h *Hooks) Reallocated(g *Guard, pod *v1.Pod) *v1.Pod {
	Each(g, h.Allocators, func(a part.Allocator) { pod = a.Changed(pod) })
	return pod
}

// Synced reports the result of a sync to the parts. It returns whether the pod's status has to be
// computed again.
func (h *Hooks) Synced(g *Guard, pod *v1.Pod, res *podruntime.Result, needsResize func() bool) (news bool) {
	Each(g, h.Syncs, func(s part.SyncWatcher) { news = s.Synced(pod, res, needsResize) || news })
	return news
}

// PublishAs returns the object whose status the sink gets for a pod. ok is false if there is no
// such object now.
func (h *Hooks) PublishAs(g *Guard, pod *v1.Pod) (object *v1.Pod, ok bool) {
	object, ok = pod, true
	for _, p := range h.Publishers {
		if err := g.Call(p.Name, func() error { object, ok = p.Hook.PublishAs(pod); return nil }); err != nil {
			return nil, false
		}
	}
	return object, ok
}

// Revives returns a function to call when an ended pod starts again, or nil if the pod does not
// start again now.
func (h *Hooks) Revives(g *Guard, pod *v1.Pod, cause podlife.Cause) (begins func()) {
	if !cause.Returns(pod) {
		return nil
	}
	for _, r := range h.Revivers {
		if Ask(g, r, func(r part.Reviver) bool { return r.Over(pod, cause) }) {
			return func() { _ = g.Call(r.Name, func() error { r.Hook.Begins(pod, cause); return nil }) }
		}
	}
	return nil
}

// Extended counts the extended resources that the parts offer.
func (h *Hooks) Extended(g *Guard) map[v1.ResourceName]part.Count {
	var out map[v1.ResourceName]part.Count
	Each(g, h.Providers, func(p part.Provider) {
		// The maps belong to the caller. The first one, mostly the only one, gets the entries of
		// the others.
		more := p.Resources()
		if out == nil {
			out = more
			return
		}
		maps.Copy(out, more)
	})
	return out
}

// Explain returns the answer of the first part that says what a pod waits for. It returns "" if
// no part does.
func (h *Hooks) Explain(g *Guard, pod *v1.Pod) (line string) {
	Each(g, h.Explainers, func(e part.Explainer) { line = cmp.Or(line, e.Explain(pod)) })
	return line
}
