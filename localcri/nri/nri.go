//go:build linux

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/localcri"
)

// DefaultSocket is the socket to which plugins connect by default.
const DefaultSocket = adaptation.DefaultSocketPath

// Config configures [Plugins]. Socket or PluginDir is required. Every other field has a default for
// its zero value.
type Config struct {
	// Socket is the absolute path of the socket for external plugins. Its directory is created if it
	// does not exist. If it is "", no plugin can connect.
	Socket string
	// PluginDir is the absolute path of a directory of plugins that are started as child processes.
	// Their names are two digits, which order the plugins, a hyphen and a name. Only root may be able
	// to write to the directory. If it is "", no plugin is started.
	PluginDir string
	// PluginConfigDir is the directory of the configurations of the plugins in PluginDir: NN-NAME.conf
	// or NAME.conf. The default is /etc/nri/conf.d.
	PluginConfigDir string
	// Name and Version are the runtime's name and version for plugins. The defaults are "nodewright"
	// and "0.0.0".
	Name, Version string
	// Options are further options of the adaptation, for example WithDefaultValidator.
	Options []adaptation.Option
	Log     *zap.Logger // if nil, nothing is logged
}

// Plugins are [localcri.Hooks]. They may be used by one runtime.
type Plugins struct {
	cfg  Config
	turn chan struct{} // has a token while no request is made: so a failure can be attributed
	seen *seen

	mu       sync.Mutex
	state    *state                    // nil before the first attempt to start
	attempt  chan struct{}             // closed after the first attempt
	creating map[string]*api.Container // those of which plugins have heard, and of which the runtime has no complete ones yet
}

// state is the result of the last attempt to start.
type state struct {
	adaptation *adaptation.Adaptation // nil if it failed
	host       localcri.HookHost
	err        error
}

// New checks cfg.
func New(cfg Config) (*Plugins, error) {
	cfg.Name, cfg.Version = cmp.Or(cfg.Name, "nodewright"), cmp.Or(cfg.Version, "0.0.0")
	cfg.PluginConfigDir = cmp.Or(cfg.PluginConfigDir, adaptation.DefaultPluginConfigPath)
	cfg.Options = slices.Clone(cfg.Options)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Socket == "" && cfg.PluginDir == "" {
		errs = append(errs, errors.New(`Config.Socket and Config.PluginDir are ""; want at least one`))
	}
	const longest = 107 // bytes of sun_path (unix(7))
	if cfg.Socket != "" && (!filepath.IsAbs(cfg.Socket) || len(cfg.Socket) > longest || strings.ContainsRune(cfg.Socket, 0)) {
		errs = append(errs, fmt.Errorf("Config.Socket is %q; want an absolute path of at most %d bytes", cfg.Socket, longest))
	}
	for field, dir := range map[string]string{"PluginDir": cfg.PluginDir, "PluginConfigDir": cfg.PluginConfigDir} {
		if dir != "" && !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("field Config.%s is %q; want an absolute path", field, dir))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("nri: %w", err)
	}
	p := &Plugins{cfg: cfg, turn: make(chan struct{}, 1), seen: &seen{}, attempt: make(chan struct{}), creating: map[string]*api.Container{}}
	p.turn <- struct{}{}
	return p, nil
}

// Run serves plugins until ctx ends. Nothing is logged after it has returned.
func (p *Plugins) Run(ctx context.Context, host localcri.HookHost) error {
	defer logTo(p.cfg.Log)()
	ctx, cancel := context.WithCancel(ctx)
	var updates sync.WaitGroup
	defer func() {
		p.mu.Lock()
		cancel() // no update begins from here on
		p.mu.Unlock()
		updates.Wait()
	}()
	a, err := p.start(ctx, host, &updates)
	p.mu.Lock()
	first := p.state == nil
	p.state = &state{a, host, err}
	p.mu.Unlock()
	if first {
		close(p.attempt)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	p.mu.Lock()
	p.state = &state{err: errors.New("the runtime is ending")}
	p.mu.Unlock()
	a.Stop()
	return nil
}

// start starts the plugins of PluginDir, and serves the socket.
func (p *Plugins) start(ctx context.Context, host localcri.HookHost, updates *sync.WaitGroup) (*adaptation.Adaptation, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	options := []adaptation.Option{
		adaptation.WithPluginPath(p.cfg.PluginDir), adaptation.WithPluginConfigPath(p.cfg.PluginConfigDir), adaptation.WithSocketPath(p.cfg.Socket),
	}
	if p.cfg.Socket == "" {
		options = append(options, adaptation.WithDisabledExternalConnections())
	}
	options = append(options, p.cfg.Options...)
	options = append(options, adaptation.WithMetrics(p.seen))
	synchronize := func(_ context.Context, plugin adaptation.SyncCB) error {
		pods, containers := p.snapshot(ctx, host)
		requested, err := plugin(ctx, pods, containers)
		if err != nil || len(requested) == 0 {
			return err
		}
		// Starts of containers wait until the plugin is synchronized, and updates wait for starts.
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			updates.Go(func() { p.update(ctx, host, requested) })
		}
		return nil
	}
	a, err := adaptation.New(p.cfg.Name, p.cfg.Version, synchronize, func(_ context.Context, requested []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		return p.update(ctx, host, requested), nil
	}, options...)
	if err != nil {
		return nil, err
	}
	if err := a.Start(); err != nil {
		a.Stop()
		return nil, err
	}
	if p.cfg.Socket != "" {
		if err := os.Chmod(p.cfg.Socket, 0o600); err != nil {
			a.Stop()
			return nil, err
		}
	}
	return a, nil
}

// ready returns an error if the plugins of PluginDir or the socket are not safe to use. The
// adaptation would replace a socket that another process serves.
func (p *Plugins) ready() error {
	if d := p.cfg.PluginDir; d != "" {
		if err := cdi.Trusted(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("plugin directory: %w", err)
		}
	}
	if p.cfg.Socket == "" {
		return nil
	}
	dir := filepath.Dir(p.cfg.Socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(dir) // such as /var/run
	if err != nil {
		return err
	}
	if err := cdi.Trusted(dir); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	info, err := os.Lstat(p.cfg.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("socket %s has mode %v; want a socket or nothing", p.cfg.Socket, info.Mode())
	}
	const timeout = time.Second
	conn, err := net.DialTimeout("unix", p.cfg.Socket, timeout)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s: another process, such as containerd, listens there", p.cfg.Socket)
	}
	return nil
}

// started returns the running adaptation. It waits for the first attempt to start.
func (p *Plugins) started(ctx context.Context) (*state, error) {
	select {
	case <-p.attempt:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.err != nil {
		return nil, fmt.Errorf("NRI plugins cannot be served: %w", p.state.err)
	}
	return p.state, nil
}

// running returns the running adaptation, or nil. It does not wait.
func (p *Plugins) running() *state {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil || p.state.err != nil {
		return nil
	}
	return p.state
}

// ask makes one request to all plugins, with no other request under way. The error names the plugin
// that caused it. No plugin is synchronized meanwhile.
func (p *Plugins) ask(ctx context.Context, a *adaptation.Adaptation, request func() error) (err error) {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.turn <- struct{}{} }()
	p.seen.reset()
	block := a.BlockPluginSync()
	defer block.Unblock()
	defer func() {
		// The adaptation combines what plugins answer; a malformed answer must not end the process.
		if r := recover(); r != nil {
			err = fmt.Errorf("NRI plugin %s: answer is malformed: %.200s", p.seen.last(), fmt.Sprint(r))
		}
	}()
	if err := request(); err != nil {
		return fmt.Errorf("%s: %.1000s", p.seen.culprit(), err.Error())
	}
	return nil
}

// Create asks the plugins how to change a container.
func (p *Plugins) Create(ctx context.Context, pod localcri.HookPod, c localcri.HookContainer) (localcri.HookChange, error) {
	s, err := p.started(ctx)
	if err != nil {
		return localcri.HookChange{}, err
	}
	request := &api.CreateContainerRequest{Pod: podOf(pod), Container: containerOf(c)}
	var answer *api.CreateContainerResponse
	var by []string
	err = p.ask(ctx, s.adaptation, func() (err error) {
		if answer, err = s.adaptation.CreateContainer(ctx, request); err != nil {
			return err
		}
		by = p.seen.changed()
		p.mu.Lock()
		p.creating[c.Status.GetId()] = request.Container // with all changes
		p.mu.Unlock()
		return nil
	})
	if err != nil || len(by) == 0 {
		return localcri.HookChange{}, err
	}
	out := localcri.HookChange{By: "NRI plugin " + strings.Join(by, ", ")}
	if out.Updates, err = updatesOf(answer.GetUpdate()); err != nil {
		return localcri.HookChange{}, fmt.Errorf("%s: %w", out.By, err)
	}
	if err := adjust(c.Spec, answer.GetAdjust()); err != nil {
		return localcri.HookChange{}, fmt.Errorf("%s: %w", out.By, err)
	}
	if devices := answer.GetAdjust().GetCDIDevices(); len(devices) > 0 {
		var names []string
		for _, d := range devices {
			names = append(names, d.GetName())
		}
		if err := s.host.Inject(ctx, c.Spec, names); err != nil {
			return localcri.HookChange{}, fmt.Errorf("%s: %w", out.By, err)
		}
	}
	out.Spec = c.Spec
	return out, nil
}

// Update asks the plugins which resources to change instead.
func (p *Plugins) Update(ctx context.Context, pod localcri.HookPod, c localcri.HookContainer, changes *runtimeapi.LinuxContainerResources) (*runtimeapi.LinuxContainerResources, []localcri.HookUpdate, error) {
	s := p.running()
	if s == nil {
		return changes, nil, nil
	}
	request := &api.UpdateContainerRequest{Pod: podOf(pod), Container: containerOf(c), LinuxResources: resourcesOf(changes)}
	var answer *api.UpdateContainerResponse
	var by []string
	err := p.ask(ctx, s.adaptation, func() (err error) {
		answer, err = s.adaptation.UpdateContainer(ctx, request)
		by = p.seen.changed()
		return err
	})
	if err != nil || len(by) == 0 {
		return changes, nil, err
	}
	updates, err := updatesOf(answer.GetUpdate())
	if err != nil {
		return nil, nil, fmt.Errorf("NRI plugin %s: %w", strings.Join(by, ", "), err)
	}
	own := func(u localcri.HookUpdate) bool { return u.ContainerID == c.Status.GetId() }
	if i := slices.IndexFunc(updates, own); i >= 0 {
		r := updates[i].Resources
		r.OomScoreAdj = changes.GetOomScoreAdj() // the protocol does not have it
		changes = r
	}
	return changes, slices.DeleteFunc(updates, own), nil
}

// Event tells the plugins of an event.
func (p *Plugins) Event(ctx context.Context, e localcri.HookEvent, pod localcri.HookPod, c *localcri.HookContainer) ([]localcri.HookUpdate, error) {
	var s *state
	if e == localcri.HookPodRun {
		var err error
		if s, err = p.started(ctx); err != nil {
			return nil, err
		}
	} else if s = p.running(); s == nil {
		return nil, nil // plugins get the state when they connect
	}
	a, pd := s.adaptation, podOf(pod)
	var ct *api.Container
	if c != nil {
		ct = containerOf(*c)
	}
	var stopped *api.StopContainerResponse
	err := p.ask(ctx, a, func() (err error) {
		switch e {
		case localcri.HookPodRun:
			return a.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pd})
		case localcri.HookPodUpdate:
			_, err = a.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{Pod: pd, OverheadLinuxResources: pd.GetLinux().GetPodOverhead(), LinuxResources: pd.GetLinux().GetPodResources()})
			return err
		case localcri.HookPodUpdated:
			return a.PostUpdatePodSandbox(ctx, &api.PostUpdatePodSandboxRequest{Pod: pd})
		case localcri.HookPodStop:
			return a.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pd})
		case localcri.HookPodRemove:
			return a.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pd})
		case localcri.HookCreated:
			p.forget(ct.GetId())
			return a.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pd, Container: ct})
		case localcri.HookStart:
			return a.StartContainer(ctx, &api.StartContainerRequest{Pod: pd, Container: ct})
		case localcri.HookStarted:
			return a.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pd, Container: ct})
		case localcri.HookUpdated:
			return a.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pd, Container: ct})
		case localcri.HookStop:
			p.forget(ct.GetId())
			stopped, err = a.StopContainer(ctx, &api.StopContainerRequest{Pod: pd, Container: ct})
			return err
		case localcri.HookRemove:
			return a.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pd, Container: ct})
		}
		return fmt.Errorf("event %q is unknown", e)
	})
	if err != nil {
		return nil, err
	}
	return updatesOf(stopped.GetUpdate())
}

// forget removes a container from those that are being created.
func (p *Plugins) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.creating, id)
}

// snapshot returns what exists, for a plugin that connects. It also has the containers that are
// being created and of which plugins that were connected earlier have heard.
func (p *Plugins) snapshot(ctx context.Context, host localcri.HookHost) (pods []*api.PodSandbox, containers []*api.Container) {
	hp, hc := host.Snapshot(ctx)
	for _, pod := range hp {
		pods = append(pods, podOf(pod))
	}
	complete := map[string]bool{}
	for _, c := range hc {
		complete[c.Status.GetId()] = true
		containers = append(containers, containerOf(c))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.creating {
		if !complete[id] {
			containers = append(containers, c)
		}
	}
	return pods, containers
}

// update makes updates that a plugin requests by itself. It returns those that failed.
func (p *Plugins) update(ctx context.Context, host localcri.HookHost, requested []*api.ContainerUpdate) (failed []*api.ContainerUpdate) {
	for i, u := range requested {
		if i == maxUpdates {
			p.cfg.Log.Warn("ignored updates of NRI plugin", zap.Int("ignored", len(requested)-maxUpdates), zap.Int("limit", maxUpdates))
			return append(failed, requested[i:]...)
		}
		made, err := updateOf(u)
		if err == nil {
			err = host.Update(ctx, made)
		}
		if err != nil {
			p.cfg.Log.Warn("failed to update container as an NRI plugin requests", zap.String("container", fmt.Sprintf("%.128s", u.GetContainerId())), zap.Error(err))
			failed = append(failed, u)
		}
	}
	return failed
}

var _ localcri.Hooks = (*Plugins)(nil)
