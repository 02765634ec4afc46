package localcri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"go.uber.org/zap"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/localcri/image"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/cni"
)

// networkKey is the key of the record of the node's network.
const networkKey = "network"

// InProcess is a container runtime in this process. Its services may be called concurrently once
// Run has begun; calls wait until the state of an earlier process is recovered.
type InProcess struct {
	runtime *Runtime
	service *Streaming // the runtime's service
	images  *image.Store
	network *network.Network
	bridge  *bridge.Plugin // nil if this kernel does not support it
	choice  networkChoice
	keep    func(context.Context) error // records the choice of the network
}

// streamsSocket is the name of the socket for streams in the state directory.
const streamsSocket = "streams"

// Runtime returns the RuntimeService, with URLs for streams; see [Streaming].
func (r *InProcess) Runtime() criapi.RuntimeService { return r.service }

// Streams serve exec, attach and port forwarding. They are for a [Server] whose clients, such as
// crictl, cannot use URLs of a unix socket.
func (r *InProcess) Streams() Streams { return r.runtime.Streams() }

// Images returns the ImageManagerService.
func (r *InProcess) Images() criapi.ImageManagerService { return r.images }

// Network returns one line that says which network pods get, and why.
func (r *InProcess) Network() string { return r.choice.String() }

// Advice returns sentences about settings of the machine that disturb the pods' network; see
// [bridge.Plugin.Advice].
func (r *InProcess) Advice() []string {
	if r.choice.kind != NetworkBridge {
		return nil
	}
	return r.bridge.Advice()
}

// Import imports the images of an archive of docker save, or of an OCI layout in a tar file, and
// returns their IDs. An image that has no name in the archive gets name.
func (r *InProcess) Import(ctx context.Context, archive io.Reader, name string) ([]string, error) {
	return r.images.Import(ctx, archive, image.ImportOptions{Name: name})
}

// Offered asks the registry of an image whether it has the image; see [image.Store.Offered].
func (r *InProcess) Offered(ctx context.Context, name string, auth *runtimeapi.AuthConfig) error {
	return r.images.Offered(ctx, name, auth)
}

// NewInProcess creates a runtime. It changes nothing on the machine except RootDir and its mode;
// Run does the rest.
func NewInProcess(ctx context.Context, cfg InProcessConfig) (*InProcess, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := maker{cfg}
	return m.make(ctx)
}

// maker creates the parts of a runtime.
type maker struct{ InProcessConfig }

// passable creates the runtime's directory with a mode that lets the root user of a pod's user
// namespace pass through it to its root file system. It must be called before the parts below it
// are created, since these create missing parents for root only.
func (m *maker) passable() error {
	return makeDir(m.RootDir, pass)
}

func (m *maker) make(ctx context.Context) (*InProcess, error) {
	if err := m.passable(); err != nil {
		return nil, fmt.Errorf("directory of the runtime: %w", err)
	}
	handlers, err := m.findHandlers()
	if err != nil {
		return nil, err
	}
	r, names := &InProcess{}, namesFor(m.RootDir)
	if err := m.makeNetwork(r, names); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if err := m.makeImages(r); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	devices, err := cdi.New(cdi.Config{Dirs: m.CDIDirs, Log: m.Log.Named("cdi")})
	if err != nil {
		return nil, err
	}
	var host cgroups.Host
	r.runtime, err = New(Config{
		RootDir: m.path("pods"), StateDir: names.stateDir, Handlers: handlers, Monitor: m.Monitor,
		PlaceMonitor: func(pid int) error { return host.Join(context.WithoutCancel(ctx), names.monitors, pid) },
		Network:      r.network, Images: r.images, CDI: devices, Hooks: m.Hooks, CgroupDriver: m.CgroupDriver, Projects: m.Projects, Log: m.Log.Named("localcri"),
	})
	if err != nil {
		return nil, err
	}
	if err := promshare.Register(m.Metrics, r.runtime.refusals); err != nil {
		return nil, err
	}
	r.service, err = NewStreaming(StreamingConfig{
		Socket: cmp.Or(m.StreamsSocket, filepath.Join(names.stateDir, streamsSocket)), Runtime: r.runtime, Streams: r.Streams(), Log: m.Log.Named("streams"),
	})
	return r, err
}

// makeImages creates the image store.
func (m *maker) makeImages(r *InProcess) (err error) {
	r.images, err = image.New(image.Config{
		RootDir: m.path("images"), Registries: m.Registries, HostsDir: m.HostsDir, PreloadDir: m.PreloadDir,
		PullBytesPerSecond: m.PullBytesPerSecond, ReserveOf: m.ImageReserve, Verify: m.Verify, Log: m.Log.Named("image"),
	})
	return err
}

func (m *maker) findHandlers() (map[string]Handler, error) {
	if len(m.Handlers) > 0 {
		return m.Handlers, nil
	}
	found, err := findExecutors()
	handlers := map[string]Handler{}
	for name, path := range found {
		handlers[name] = Handler{Path: path}
	}
	return handlers, err
}

// makeNetwork chooses the network for new sandboxes. It creates the plugins of all kinds, so that
// each can remove the attachments that it has made earlier.
func (m *maker) makeNetwork(r *InProcess, names names) error {
	store := m.choices()
	last, err := store.Read(networkKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Log.Warn("failed to read which network the node had", zap.Error(err))
	}
	cniConfig := m.CNI
	if cniConfig.ConfDir == "" {
		cniConfig.ConfDir = cni.DefaultConfDir
	}
	cniConfig.Reserved = m.Bridge.Reserved
	cniConfig.CacheDir, cniConfig.Log = m.path("cni"), m.Log.Named("cni")
	conf, noConf := cni.Find(cniConfig)
	r.choice, err = chooseNetwork(inProcessMachine{asked: m.Network, last: string(last), cluster: m.Cluster, conf: conf, noConf: noConf})
	if err != nil {
		return err
	}
	if r.choice.kind != string(last) {
		r.keep = func(ctx context.Context) error {
			return store.WriteContext(context.WithoutCancel(ctx), networkKey, []byte(r.choice.kind))
		}
	}
	plugins := map[string]network.Plugin{NetworkNone: network.None()}
	if plugins[NetworkCNI], err = cni.New(cniConfig); err != nil {
		return err
	}
	bridgeConfig := m.Bridge
	bridgeConfig.StateDir, bridgeConfig.Name, bridgeConfig.Table, bridgeConfig.VethPrefix = m.path("bridge"), names.bridge, names.table, names.veth
	bridgeConfig.Log = m.Log.Named("bridge")
	switch r.bridge, err = bridge.New(bridgeConfig); {
	case err == nil:
		plugins[NetworkBridge] = r.bridge
	case r.choice.kind == NetworkBridge:
		return fmt.Errorf("%w; want a configuration of CNI in %s, or the network %s", err, cniConfig.ConfDir, NetworkNone)
	}
	list := []network.Plugin{plugins[r.choice.kind]}
	for _, kind := range networks() {
		if p := plugins[kind]; p != nil && kind != r.choice.kind {
			list = append(list, p)
		}
	}
	r.network, err = network.New(network.Config{Plugins: list, StateDir: m.path("network"), Prefix: names.spaces, Log: m.Log.Named("network")})
	return err
}

// choices returns the store of the node's recorded choices.
func (m *maker) choices() *checkpoint.Lazy {
	return checkpoint.NewLazy(checkpoint.Config{Dir: m.path("choices"), OnCorrupt: func(key, aside string, err error) {
		m.Log.Error("set aside damaged record", zap.String("key", key), zap.String("file", aside), zap.Error(err))
	}})
}

// Run serves until ctx ends; containers keep running. The runtime ends before the parts that it
// needs. If one part fails, all parts end.
func (r *InProcess) Run(ctx context.Context) error {
	if r.keep != nil {
		if err := r.keep(ctx); err != nil {
			return fmt.Errorf("record the node's network: %w", err)
		}
	}
	beside, endBeside := context.WithCancel(context.WithoutCancel(ctx))
	ctx, endRuntime := context.WithCancel(ctx)
	others := map[string]func(context.Context) error{"images": r.images.Run, "network": r.network.Run, "streams": r.service.Run}
	ended := make(chan error, len(others))
	for name, run := range others {
		go func() {
			defer endRuntime()
			err := run(beside)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			ended <- err
		}()
	}
	err := r.runtime.Run(ctx)
	endRuntime()
	endBeside()
	for range others {
		err = errors.Join(err, <-ended)
	}
	if r.bridge != nil {
		r.bridge.Close()
	}
	return err
}
