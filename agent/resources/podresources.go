package resources

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podworker"
)

// sourcesTimeout limits how long calls wait for sources that have not delivered.
const sourcesTimeout = time.Minute

// PodResourcesConfig configures [PodResources]. Socket is required. Every other field has a
// default for its zero value.
type PodResourcesConfig struct {
	// Socket is an absolute path. Its directory is created if it does not exist.
	Socket  string
	Devices devicemgr.AssignedDevices // if nil, the API lists no devices
	Claims  devicemgr.PreparedClaims  // if nil, the API lists no claims
	CPUs    devicemgr.AssignedCPUs    // if nil, the API lists no CPUs
	Memory  devicemgr.AssignedMemory  // if nil, the API lists no memory

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// PodResources serves the kubelet's podresources API for a node agent: which pods have
// which devices, CPUs and memory. It is a [part.Part] that runs the server of package
// devicemgr, and provides it with the node's pods.
//
//	p, err := resources.NewPodResources(resources.PodResourcesConfig{
//		Socket:  "/var/lib/kubelet/pod-resources/kubelet.sock",
//		Devices: devices,                         // a *devicemgr.Manager
//		CPUs:    placed.CPUs(),                   // of a *resources.Placement
//		Memory:  placed.Memory(),
//	})
//
// It has the hooks Joiner and Runner. Its order among the parts does not matter.
//
// # Which pods
//
// The API lists pods that were admitted and have not ended, and running pods that have
// not been adopted yet. If a pod is missing, clients conclude that it has no devices.
// So calls wait until every source has delivered, but at most a minute; then they are
// answered with the known pods. The socket exists from the start.
//
// # Ownership and faults
//
// NewPodResources has no side effects. Run owns the socket, and returns when no call is
// running. If the socket cannot be created, Run tries again until ctx ends. Answers are
// computed from memory.
type PodResources struct {
	server *devicemgr.PodResources
	ready  chan struct{} // closed when the pods are known
	host   part.Host     // set by Join
}

var (
	_ part.Joiner         = (*PodResources)(nil)
	_ part.Runner         = (*PodResources)(nil)
	_ devicemgr.PodLister = (*PodResources)(nil)
)

// NewPodResources checks cfg and returns a part. It reports all errors at once.
func NewPodResources(cfg PodResourcesConfig) (*PodResources, error) {
	p := &PodResources{ready: make(chan struct{})}
	var err error
	p.server, err = devicemgr.NewPodResources(devicemgr.PodResourcesConfig{
		Socket: cfg.Socket, Pods: p, Devices: cfg.Devices, Claims: cfg.Claims, CPUs: cfg.CPUs, Memory: cfg.Memory, Ready: p.ready,
		Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements part.Part.
func (*PodResources) Name() string { return "podresources" }

// Join implements part.Joiner.
func (p *PodResources) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Run implements part.Runner: it serves until ctx ends. Calls wait until the pods are known.
func (p *PodResources) Run(ctx context.Context) error {
	var await sync.WaitGroup
	await.Go(func() { p.await(ctx) })
	defer await.Wait()
	return p.server.Run(ctx)
}

// await lets calls proceed when every source has delivered, or after sourcesTimeout.
func (p *PodResources) await(ctx context.Context) {
	late := time.NewTimer(sourcesTimeout)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return // calls get no answer any more
	case <-p.host.Settled():
	case <-late.C:
	}
	close(p.ready)
}

// ActivePods returns the pods that hold resources of the node: the admitted ones, and the running
// ones that have not been adopted yet.
func (p *PodResources) ActivePods() []*v1.Pod {
	active := p.host.ActivePods()
	listed := make(map[types.UID]bool, len(active))
	for _, pod := range active {
		listed[pod.UID] = true
	}
	for _, pod := range p.host.Pods() {
		if !listed[pod.UID] && p.runs(pod.UID) {
			active = append(active, pod)
		}
	}
	return active
}

func (p *PodResources) runs(uid types.UID) bool {
	if w, ok := p.host.Worker(uid); ok && w.Kind == podworker.Terminated {
		return false
	}
	return p.host.Observed(uid).Runs() == observed.Yes
}
