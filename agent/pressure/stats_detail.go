package pressure

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/stats"
)

// PodDetail has details of a running pod that a Summary lacks.
type PodDetail struct {
	UID types.UID
	stats.Detail
	Sandbox    InstanceDetail // without an ID if none is running
	Containers []InstanceDetail
}

// InstanceDetail has the details of a running container or of a sandbox. Detail is empty if pods
// have no cgroups of their own.
type InstanceDetail struct {
	Name  string // name of the container; "" for a sandbox
	ID    string // the runtime's own
	Image string // "" for a sandbox, whose image only the runtime knows
	stats.Detail
}

// Details returns the details of running pods. If a cgroup cannot be read, Details returns what
// it could read together with the error.
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

// running returns the running pods, without the values of their cgroups. network has the pods with
// their own network.
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
