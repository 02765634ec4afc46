package podresources

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr/podresources"
	"github.com/nodewright/nodewright/podworker"
)

// sourcesPatience is how long calls wait for sources that do not say what
// should run.
const sourcesPatience = time.Minute

// Config holds what a Part needs. Socket is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// Socket is an absolute path. Its directory is made if it is not there.
	Socket  string
	Devices podresources.Devices // no devices
	Claims  podresources.Claims  // no claims
	CPUs    podresources.CPUs    // no CPUs
	Memory  podresources.Memory  // no memory

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Part serves which pods have what.
type Part struct {
	server *podresources.Server
	ready  chan struct{} // closed once it is known which pods there are
	host   part.Host     // set by Join
}

var (
	_ part.Joiner       = (*Part)(nil)
	_ part.Runner       = (*Part)(nil)
	_ podresources.Pods = (*Part)(nil)
)

// New checks cfg and returns a Part at rest. It reports all mistakes at once.
func New(cfg Config) (*Part, error) {
	p := &Part{ready: make(chan struct{})}
	var err error
	p.server, err = podresources.New(podresources.Config{
		Socket: cfg.Socket, Pods: p, Devices: cfg.Devices, Claims: cfg.Claims, CPUs: cfg.CPUs, Memory: cfg.Memory, Ready: p.ready,
		Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements part.Part.
func (*Part) Name() string { return "podresources" }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("podresources: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

// Run implements part.Runner: it serves until ctx ends. Calls that come before it is known
// which pods there are wait for that.
func (p *Part) Run(ctx context.Context) error {
	var await sync.WaitGroup
	await.Go(func() { p.await(ctx) })
	defer await.Wait()
	return p.server.Run(ctx)
}

// await lets calls be answered as soon as every source has spoken, or has been silent for too
// long.
func (p *Part) await(ctx context.Context) {
	late := time.NewTimer(sourcesPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return // nobody is answered any more
	case <-p.host.Settled():
	case <-late.C:
	}
	close(p.ready)
}

// ActivePods are the pods that hold something of the node: those that were
// admitted, and those that run and have not been adopted yet.
func (p *Part) ActivePods() []*v1.Pod {
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

func (p *Part) runs(uid types.UID) bool {
	if w, ok := p.host.Worker(uid); ok && w.Kind == podworker.Terminated {
		return false
	}
	obs, _ := p.host.Observed(uid) // also what was seen before the last look failed
	return obs.AnyRunning()
}
