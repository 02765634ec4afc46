package csi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Config configures a Part.
type Config struct {
	// CSI configures the manager of drivers. The part sets Secrets, Changed and Exhausted.
	CSI block.Config
	// Claims writes the progress of a volume's expansion to the status of its claim. If Claims is
	// nil, a volume is expanded only while exactly one pod has it.
	Claims block.Claims
	Log    *zap.Logger // if nil, nothing is logged
}

// Part provides the volumes of CSI drivers. Its methods may be called from any goroutine.
type Part struct {
	cfg     Config
	manager *block.Manager
	host    part.Host
	storage part.Storage
	look    wake.Signal // claims may have changed

	mu     sync.Mutex
	ctx    context.Context // Run's; nil before
	ending map[types.UID]bool
	wg     sync.WaitGroup
}

var (
	_ part.Joiner      = (*Part)(nil)
	_ part.Runner      = (*Part)(nil)
	_ part.Admitter    = (*Part)(nil)
	_ part.Explainer   = (*Part)(nil)
	_ part.Housekeeper = (*Part)(nil)
)

// New checks cfg and returns a Part for agent.Config.Parts.
func New(cfg Config) (*Part, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	p := &Part{cfg: cfg, look: wake.New(), ending: map[types.UID]bool{}}
	c := cfg.CSI
	c.Secrets, c.Changed, c.Exhausted = p, p.changed, p.exhausted
	var err error
	if p.manager, err = block.New(c); err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements part.Part.
func (p *Part) Name() string { return "csi" }

// Manager returns the manager of the drivers.
func (p *Part) Manager() *block.Manager { return p.manager }

// Plugin returns the volume plugin, for the agent's VolumeConfig.
func (p *Part) Plugin() volumemgr.Plugin { return p.manager.Plugin() }

// Registrar returns the handler for the registration of drivers, for a pluginmgr.Manager.
func (p *Part) Registrar() block.Registrar { return p.manager.Registrar() }

// Join implements part.Joiner. The agent has to provide the objects of its sources.
func (p *Part) Join(h part.Host) error {
	s, ok := h.(part.Storage)
	if !ok {
		return errors.New("the agent does not know the Secrets, claims and volumes of its sources (part.Storage)")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := part.SetHost(&p.host, h); err != nil {
		return err
	}
	p.storage = s
	return nil
}

// Run implements part.Runner.
func (p *Part) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	defer p.wg.Wait()
	p.wg.Go(func() { p.expands(ctx) })
	return p.manager.Run(ctx)
}

// Explain implements part.Explainer.
func (p *Part) Explain(pod *v1.Pod) string { return p.manager.Waits(pod.UID) }

// Housekeep implements part.Housekeeper: a claim may request a larger volume.
func (p *Part) Housekeep([]*v1.Pod) {
	p.look.Set()
}

// changed wakes the volumes that wait for an object.
func (p *Part) changed(r volumemgr.Ref) {
	p.mu.Lock()
	s := p.storage
	p.mu.Unlock()
	if s != nil {
		s.VolumesChanged(r)
	}
}

// Secret implements csi.Secrets, with the Secrets of the agent's sources.
func (p *Part) Secret(_ context.Context, namespace, name string) (map[string][]byte, error) {
	p.mu.Lock()
	s := p.storage
	p.mu.Unlock()
	if s == nil {
		return nil, errors.New("the agent has not started yet")
	}
	if found := s.Secrets(namespace)[name]; found != nil {
		return plugins.ObjectOfSecret(found).Data, nil
	}
	return nil, plugins.ErrNotFound
}

// exhausted ends a pod with a volume that cannot be attached because the node has as
// many volumes as it can have.
func (p *Part) exhausted(pod *v1.Pod, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.ctx.Err() != nil || p.host == nil || p.ending[pod.UID] {
		return
	}
	p.ending[pod.UID] = true
	ctx := p.ctx
	p.wg.Go(func() {
		why := podlife.Cause{Kind: podlife.VolumesExhausted, Message: fmt.Sprintf("a volume cannot be attached: %v", cause), At: time.Now()}
		eventType, reason, message := why.Event()
		p.host.Event(pod, nil, eventType, reason, message)
		err := p.host.End(ctx, pod, why)
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Error("failed to end pod whose volume cannot be attached", zap.String("uid", string(pod.UID)), zap.Error(err))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.ending, pod.UID)
	})
}
