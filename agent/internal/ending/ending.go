// Package ending knows when pods that are ending should be gone.
package ending

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// Margin is what a pod may take to end beyond its time, before nobody
// waits for what it has.
const Margin = 30 * time.Second

// Pods are those that are ending, or may not come at all.
type Pods struct {
	UIDs  []types.UID
	Names []string  // by namespace and name
	Until time.Time // when all should be gone
}

// Add adds one that should have ended at a time.
func (p *Pods) Add(uid types.UID, name string, end time.Time) {
	p.UIDs, p.Names = append(p.UIDs, uid), append(p.Names, name)
	if end.After(p.Until) {
		p.Until = end
	}
}

// Without are the others when those that leave have gone.
func (p *Pods) Without(others []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(others), func(o *v1.Pod) bool { return slices.Contains(p.UIDs, o.UID) })
}

// At is when a pod that is ending should have ended.
func At(w podworker.Status) time.Time {
	by := w.EndsBy
	if by.IsZero() {
		if by = w.TerminatingAt; by.IsZero() {
			by = time.Now()
		}
		by = by.Add(podlife.Grace(w.Pod, nil, podlife.Cause{}))
	}
	return by.Add(Margin)
}
