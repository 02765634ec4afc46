package pressure

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// pods provides the agent's pods for package gc.
type pods struct{ *Collection }

// Ready implements gc.Pods.
func (p pods) Ready() bool { return p.host.AllReady() }

// State implements gc.Pods.
func (p pods) State(uid types.UID) gc.PodState {
	w, known := p.host.Worker(uid)
	want := p.host.Want(uid)
	wanted := want.Wanted() == observed.Yes
	switch {
	case known && w.Kind != podworker.Terminated:
		return gc.Live
	// A source that has delivered only stored pods may lack this one. Its dead containers have its
	// restart counts.
	case !known && want.Wanted() == observed.Maybe:
		return gc.Live
	case (known || !wanted) && p.garbage.ContentRemovable(uid):
		return gc.Deleted
	case known || p.hasEnded(uid): // without a worker: the pod was rejected
		return gc.Terminated
	}
	return gc.Live
}

func (p *Collection) hasEnded(uid types.UID) bool {
	phase, ok := p.host.Phase(uid)
	return ok && podmeta.IsTerminal(phase)
}

// desiredImages returns the images of the pods that should run here.
func (p *Collection) desiredImages() []string {
	var out []string
	for _, pod := range p.host.Pods() {
		if podmeta.IsTerminal(pod.Status.Phase) || p.garbage.KnownTerminated(pod.UID) || p.hasEnded(pod.UID) {
			continue
		}
		out = append(out, imagesOf(&pod.Spec)...)
	}
	return out
}

func imagesOf(spec *v1.PodSpec) []string {
	var out []string
	for i := range spec.InitContainers {
		out = append(out, spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		out = append(out, spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		out = append(out, spec.EphemeralContainers[i].Image)
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil && v.Reference != "" {
			out = append(out, v.Reference)
		}
	}
	return out
}
