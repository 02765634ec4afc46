package query

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// RunningPods returns the running pods, wanted or not. Their specs have only what the runtime
// knows: names and images.
func (q *Query) RunningPods(context.Context) ([]*v1.Pod, error) {
	if err := q.Runtime.Healthy(); err != nil {
		return nil, fmt.Errorf("the container runtime is not healthy: %w", err)
	}
	var pods []*v1.Pod
	for _, l := range q.Runtime.Pods() {
		seen := q.Runtime.View(l.UID)
		if seen.Runs() != observed.Yes {
			continue
		}
		obs := seen.Pod
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace, UID: l.UID}}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.State == observed.Running {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(x, y *v1.Pod) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	return pods, nil
}

// ContainerID returns the runtime's ID of a running container. If no such container is running,
// the error is a [local.ErrNotFound]. uid may be the UID of a static pod's mirror.
func (q *Query) ContainerID(_ context.Context, uid types.UID, container string) (string, error) {
	seen := q.Runtime.View(q.ownUID(uid))
	if seen.Err != nil {
		return "", seen.Err
	}
	for i := range seen.Pod.Containers {
		if c := &seen.Pod.Containers[i]; c.Name == container && c.State == observed.Running {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("container %q does not run: %w", container, local.ErrNotFound)
}

// SandboxID returns the runtime's ID of a running pod's sandbox. If there is none, the error is a
// [local.ErrNotFound]. uid may be the UID of a static pod's mirror.
func (q *Query) SandboxID(_ context.Context, uid types.UID) (string, error) {
	seen := q.Runtime.View(q.ownUID(uid))
	if seen.Err != nil {
		return "", seen.Err
	}
	for i := range seen.Pod.Sandboxes {
		if s := &seen.Pod.Sandboxes[i]; s.State == observed.Running {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("no sandbox of the pod runs: %w", local.ErrNotFound)
}

// LogFile returns the path of a container's log, and whether the container may still write to it.
// If there is no such container, or it has no log, the error is a [local.ErrNotFound].
func (q *Query) LogFile(_ context.Context, id string) (path string, open bool, err error) {
	for _, l := range q.Runtime.Pods() {
		if !slices.ContainsFunc(l.Containers, func(c observed.Item) bool { return c.ID == id }) {
			continue
		}
		seen := q.Runtime.View(l.UID)
		if seen.Err != nil {
			return "", false, seen.Err
		}
		for i := range seen.Pod.Containers {
			if c := &seen.Pod.Containers[i]; c.ID == id && c.LogPath != "" {
				return c.LogPath, c.State != observed.Exited, nil
			}
		}
	}
	return "", false, fmt.Errorf("container %s has no log: %w", id, local.ErrNotFound)
}

// ownUID returns the UID of the static pod if uid is the UID of its mirror. Other UIDs are
// returned unchanged.
func (q *Query) ownUID(uid types.UID) types.UID {
	for _, m := range q.Sources.Mirrors() {
		if m.UID == uid {
			if p, ok := q.Sources.PodByName(m.Namespace, m.Name); ok && podmeta.IsStatic(p) {
				return p.UID
			}
		}
	}
	return uid
}

// Resources returns the node's capacity and allocatable resources: the configured ones, and those
// that parts offer now.
func (q *Query) Resources() (capacity, allocatable v1.ResourceList) {
	capacity, allocatable = q.Node.Capacity.DeepCopy(), q.Node.Allocatable.DeepCopy()
	count := func(list *v1.ResourceList, name v1.ResourceName, n int) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	for name, c := range q.Extended() {
		count(&capacity, name, c.Capacity)
		count(&allocatable, name, c.Allocatable)
	}
	return capacity, allocatable
}

// Parts lists the agent's parts with the names of their hooks, in their order.
func (q *Query) Parts() []local.Part { return slices.Clone(q.PartList) }
