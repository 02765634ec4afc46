package pressure

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/stats"
)

// PodDetail is what a Summary lacks of a pod that runs.
type PodDetail struct {
	UID types.UID
	stats.Detail
	Sandbox    InstanceDetail // without an ID if none runs
	Containers []InstanceDetail
}

// InstanceDetail is that of a container that runs, or of a sandbox. Detail is
// empty where pods have no cgroups of their own.
type InstanceDetail struct {
	Name  string // of the container; "" for a sandbox
	ID    string // the runtime's own
	Image string // "" for a sandbox: the runtime alone knows
	stats.Detail
}

// Details lists what a Summary lacks of pods that run. What is known of them is
// returned beside the error of cgroups that cannot be read.
func (p *Stats) Details() ([]PodDetail, error) {
	out, network := p.running()
	at := make(map[types.UID]int, len(out))
	for i := range out {
		at[out[i].UID] = i
	}
	cgroups, err := p.block.Details(func(uid types.UID) (sandbox string, own, ok bool) {
		i, ok := at[uid]
		if !ok {
			return "", false, false
		}
		return out[i].Sandbox.ID, network[uid], true
	})
	for uid, d := range cgroups {
		pod := &out[at[uid]]
		pod.Detail, pod.Sandbox.Detail = d.Detail, d.Containers[pod.Sandbox.ID]
		for i := range pod.Containers {
			pod.Containers[i].Detail = d.Containers[pod.Containers[i].ID]
		}
	}
	return out, err
}

// running lists the pods that run, without what their cgroups have counted.
// network has those with a network of their own.
func (p *Stats) running() (pods []PodDetail, network map[types.UID]bool) {
	network = map[types.UID]bool{}
	for _, l := range p.host.RuntimePods() {
		seen := p.host.Observed(l.UID)
		if seen.Runs() != observed.Yes {
			continue
		}
		obs := seen.Pod
		d := PodDetail{UID: l.UID}
		for i := range obs.Sandboxes {
			if s := &obs.Sandboxes[i]; s.State == observed.Running && d.Sandbox.ID == "" {
				d.Sandbox.ID, network[l.UID] = s.ID, !s.HostNetwork
			}
		}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.State == observed.Running {
				d.Containers = append(d.Containers, InstanceDetail{Name: c.Name, ID: c.ID, Image: c.Image})
			}
		}
		pods = append(pods, d)
	}
	return pods, network
}
