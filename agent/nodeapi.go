package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/podmeta"
)

func (a *Agent) turned() {
	now := time.Now()
	a.beat.Store(&now)
}

// LastTurn is when the agent's own loop turned last, whatever the runtime does;
// zero before its first turn. It turns once a minute at least. No change of the
// clock matters to what is measured from it.
func (a *Agent) LastTurn() time.Time {
	if at := a.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// RunningPods lists what runs, wanted or not, with specs that have no more than
// the runtime knows: names and images.
func (a *Agent) RunningPods(context.Context) ([]*v1.Pod, error) {
	if err := a.pleg.Healthy(); err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	var pods []*v1.Pod
	for _, l := range a.pleg.Pods() {
		obs, err := a.pleg.Get(l.UID)
		if err != nil || !obs.AnyRunning() {
			continue
		}
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

// ContainerID is the runtime's name for a container that runs; the error is a
// [local.ErrNotFound] if none does. uid may be that of a static pod's mirror.
func (a *Agent) ContainerID(_ context.Context, uid types.UID, container string) (string, error) {
	obs, err := a.pleg.Get(a.ownUID(uid))
	if err != nil {
		return "", err
	}
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.Name == container && c.State == observed.Running {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("container %q does not run: %w", container, local.ErrNotFound)
}

// SandboxID is the runtime's name for the sandbox of a pod that runs; the error
// is a [local.ErrNotFound] if there is none. uid may be that of a static pod's
// mirror.
func (a *Agent) SandboxID(_ context.Context, uid types.UID) (string, error) {
	obs, err := a.pleg.Get(a.ownUID(uid))
	if err != nil {
		return "", err
	}
	for i := range obs.Sandboxes {
		if s := &obs.Sandboxes[i]; s.State == observed.Running {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("no sandbox of the pod runs: %w", local.ErrNotFound)
}

// LogFile is where a container logs to, and whether more may come. The error
// is a [local.ErrNotFound] if there is no such container, or it has no log.
func (a *Agent) LogFile(_ context.Context, id string) (path string, open bool, err error) {
	for _, l := range a.pleg.Pods() {
		if !slices.ContainsFunc(l.Containers, func(c observed.Item) bool { return c.ID == id }) {
			continue
		}
		obs, err := a.pleg.Get(l.UID)
		if err != nil {
			return "", false, err
		}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.ID == id && c.LogPath != "" {
				return c.LogPath, c.State != observed.Exited, nil
			}
		}
	}
	return "", false, fmt.Errorf("container %s has no log: %w", id, local.ErrNotFound)
}

// ownUID turns the UID of a static pod's mirror into its own, and leaves others.
func (a *Agent) ownUID(uid types.UID) types.UID {
	for _, m := range a.pods.Mirrors() {
		if m.UID == uid {
			if p, ok := a.pods.PodByName(m.Namespace, m.Name); ok && podmeta.IsStatic(p) {
				return p.UID
			}
		}
	}
	return uid
}

// PodDetail is what a Summary does not tell of a pod that runs.
type PodDetail struct {
	UID types.UID
	stats.Detail
	Sandbox    InstanceDetail // without an ID if none runs
	Containers []InstanceDetail
}

// InstanceDetail is that of a container that runs, or of a sandbox. Detail is
// empty where the agent keeps no cgroups of pods.
type InstanceDetail struct {
	Name  string // of the container; "" for a sandbox
	ID    string // the runtime's own
	Image string // "" for a sandbox: the runtime alone knows
	stats.Detail
}

// Devices are the node's block devices that have done something.
func (a *Agent) Devices() []stats.Device { return a.stats.Devices() }

// Details lists what a Summary does not tell of pods that run. What is known of
// them is returned beside the error of cgroups that cannot be read.
func (a *Agent) Details() ([]PodDetail, error) {
	var out []PodDetail
	at := map[types.UID]int{}
	network := map[types.UID]bool{}
	for _, l := range a.pleg.Pods() {
		obs, _ := a.pleg.Get(l.UID) // also what was seen before the last look failed
		if obs == nil || !obs.AnyRunning() {
			continue
		}
		p := PodDetail{UID: l.UID}
		for i := range obs.Sandboxes {
			if s := &obs.Sandboxes[i]; s.State == observed.Running && p.Sandbox.ID == "" {
				p.Sandbox.ID, network[l.UID] = s.ID, !s.HostNetwork
			}
		}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.State == observed.Running {
				p.Containers = append(p.Containers, InstanceDetail{Name: c.Name, ID: c.ID, Image: c.Image})
			}
		}
		at[l.UID] = len(out)
		out = append(out, p)
	}
	cgroups, err := a.stats.Details(func(uid types.UID) (sandbox string, own, ok bool) {
		i, ok := at[uid]
		if !ok {
			return "", false, false
		}
		return out[i].Sandbox.ID, network[uid], true
	})
	for uid, d := range cgroups {
		p := &out[at[uid]]
		p.Detail, p.Sandbox.Detail = d.Detail, d.Containers[p.Sandbox.ID]
		for i := range p.Containers {
			p.Containers[i].Detail = d.Containers[p.Containers[i].ID]
		}
	}
	return out, err
}
