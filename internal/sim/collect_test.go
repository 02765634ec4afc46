package sim

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// youngImage is how long an image may stay that nobody needs any more: the kubelet's default is two
// minutes after it was seen first.
const youngImage = startBound

// collectedWithin is how long a dead container may stay that another one has followed: two looks for
// such containers.
const collectedWithin = 2 * time.Minute

func (r nodeRuntime) RemoveImage(ctx context.Context, i *runtimeapi.ImageSpec) error {
	m := r.l.m
	return r.call(ctx, "RemoveImage", "", true, func() { m.judgeImageEnd(i) }, func() error {
		return r.Runtime.RemoveImage(ctx, i)
	})
}

// usersOf lists the pods of which the runtime has a container of one of some images, dead ones
// too. m.mu is held.
func (m *machine) usersOf(names []string) (out []string) {
	for _, instances := range []map[string]*instance{m.made, m.past} {
		for _, i := range instances {
			if _, _, known := m.rt.State(i.id); known && slices.Contains(names, i.image) {
				out = append(out, m.pods[i.uid].object.Name)
			}
		}
	}
	return out
}

// judgeImageEnd looks at the removal of an image. m.mu is held.
func (m *machine) judgeImageEnd(i *runtimeapi.ImageSpec) {
	st, err := m.rt.ImageStatus(context.Background(), i, false)
	if err != nil || st.GetImage() == nil {
		return
	}
	if users := m.usersOf(st.GetImage().GetRepoTags()); len(users) > 0 {
		m.wrong("image %v is removed, and %v have containers of it", st.GetImage().GetRepoTags(), users)
	}
}

// judgeReclaimed looks at the images when a pod is evicted for the disk: those that nobody needs
// have gone first, if nothing was in the way. m.mu is held.
func (m *machine) judgeReclaimed() {
	// What cannot be asked about a container may be an image that it mounts: all of them stay.
	if m.troubled > 0 || len(m.faults) > 0 || time.Since(m.healed) < startBound {
		return
	}
	images, _ := m.rt.ListImages(context.Background(), nil)
	for _, i := range images {
		needed := len(m.usersOf(i.GetRepoTags())) > 0
		for _, p := range m.pods {
			named := p.gone.IsZero() || time.Since(p.gone) < youngImage
			edited := p.epoch > 0 && time.Since(p.since) < youngImage
			needed = needed || edited || named && slices.Contains(i.GetRepoTags(), p.object.Spec.Containers[0].Image)
		}
		if !needed {
			m.wrong("a pod is evicted for the disk, and image %v is there, which nobody needs", i.GetRepoTags())
		}
	}
}

// judgeCollected looks at rest for dead containers: one of each container may stay, by the
// kubelet's default, beside one that has just ended. m.mu is held.
func (m *machine) judgeCollected(containers []*runtimeapi.Container) {
	if !m.node {
		return
	}
	type unit struct {
		uid  types.UID
		name string
	}
	dead := map[unit]int{}
	for _, c := range containers {
		i := m.instanceOf(c.GetId())
		if i == nil || c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		if ended := time.Unix(0, m.status(i.id).GetFinishedAt()); time.Since(ended) < collectedWithin {
			continue
		}
		u := unit{i.uid, i.name}
		if dead[u]++; dead[u] == 2 {
			m.wrong("dead instances of %s/%s are left", m.pods[i.uid].object.Name, i.name)
		}
	}
}
