package nodeagent

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/node/stats"
	usagemetrics "github.com/nodewright/nodewright/nodeagent/internal/usage"
)

// The content of /metrics/cadvisor beyond a Summary, with the names that dashboards
// use.

// machine returns the node's machine for metrics. It is called once, when the API is made. Values
// that cannot be read are left out. If the machine cannot be read at all, all values are 0.
func (b *Builder) machine() usagemetrics.Machine {
	f, err := b.Describer().Facts(context.Background())
	if err != nil {
		return usagemetrics.Machine{}
	}
	m := usagemetrics.Machine{
		Cores: int(f.Capacity.Cpu().Value()), MemoryBytes: uint64(f.Capacity.Memory().Value()), SwapBytes: uint64(f.Swap), //nolint:gosec // none is negative
		MachineID: f.MachineID, SystemUUID: f.SystemUUID, BootID: f.BootID,
	}
	if cpus, err := b.numa(); err == nil {
		// Hardware threads share the number of their core, which counts once.
		cores, sockets := map[int]bool{}, map[int]bool{}
		for _, c := range cpus.CPUs {
			cores[c.Core], sockets[c.Socket] = true, true
		}
		m.PhysicalCores, m.Sockets = len(cores), len(sockets)
	}
	return m
}

// details returns the values of cAdvisor that a Summary lacks, from the agent and the runtime.
// Its fields are interfaces with the methods that it uses, so that tests need neither a runtime
// nor a usage.
type details struct {
	usage interface {
		Details() ([]pressure.PodDetail, error)
		Devices() []stats.Device
	}
	runtime interface {
		PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	}

	mu sync.Mutex
	// pauses has the image of each sandbox that was read, by sandbox ID. The image of a sandbox
	// does not change, so each is read once. mu guards pauses.
	pauses map[string]string // images of running sandboxes, by id
}

// Details implements usagemetrics.Details. A key has the pod's UID and the container's name,
// which is "" for the pod itself. If Details fails, it returns the values that could be read
// together with the error.
func (d *details) Details(ctx context.Context) (map[usagemetrics.Key]usagemetrics.Detail, error) {
	pods, err := d.usage.Details()
	pauses := d.images(ctx, pods)
	out := make(map[usagemetrics.Key]usagemetrics.Detail, 3*len(pods))
	for i := range pods {
		p := &pods[i]
		uid := string(p.UID)
		out[usagemetrics.Key{PodUID: uid}] = usagemetrics.Detail{Detail: p.Detail}
		out[usagemetrics.Key{PodUID: uid, Container: usagemetrics.Sandbox}] = usagemetrics.Detail{Detail: p.Sandbox.Detail, Name: p.Sandbox.ID, Image: pauses[p.Sandbox.ID]}
		for j := range p.Containers {
			c := &p.Containers[j]
			out[usagemetrics.Key{PodUID: uid, Container: c.Name}] = usagemetrics.Detail{Detail: c.Detail, Name: c.ID, Image: c.Image}
		}
	}
	return out, err
}

// Groups implements usagemetrics.Groups. If the node's usage does not implement it, Groups
// returns no cgroups.
func (d *details) Groups() ([]stats.Detail, error) {
	known, ok := d.usage.(usagemetrics.Groups)
	if !ok {
		return nil, nil
	}
	return known.Groups()
}

// Devices implements usagemetrics.Details.
func (d *details) Devices() []stats.Device { return d.usage.Devices() }

// pauseTimeout limits how long one scrape reads the images of sandboxes, which are optional.
const pauseTimeout = time.Second

// images returns the images of sandboxes, which a runtime returns one by one and in
// its own format. Each is read once. d.mu is held during the calls, so that a
// second scrape waits instead of repeating them. The map is replaced, which removes
// sandboxes that are gone.
func (d *details) images(ctx context.Context, pods []pressure.PodDetail) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	now := make(map[string]string, len(pods))
	for i := range pods {
		id := pods[i].Sandbox.ID
		image, known := d.pauses[id]
		if !known && id != "" && ctx.Err() == nil {
			r, err := d.runtime.PodSandboxStatus(ctx, id, true)
			// Not stored, so that the next scrape tries again.
			if err != nil {
				continue
			}
			// containerd and CRI-O have "info", JSON with "image".
			var info struct{ Image string }
			_ = json.Unmarshal([]byte(r.GetInfo()["info"]), &info) // other runtimes lack it
			image, known = info.Image, true
		}
		if known {
			now[id] = image
		}
	}
	d.pauses = now
	return now
}
