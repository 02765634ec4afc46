package localcri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/cdi"
	"github.com/nodewright/nodewright/localcri/image"
	imagemetrics "github.com/nodewright/nodewright/localcri/image/metrics"
	"github.com/nodewright/nodewright/localcri/metrics"
	"github.com/nodewright/nodewright/localcri/serve"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/cni"
	networkmetrics "github.com/nodewright/nodewright/network/metrics"
	"github.com/nodewright/nodewright/nodeagent"
)

// Config says how a node's own runtime is made. The zero value of every field means
// the default named beside it.
type Config struct {
	// Program is the monitor's program itself, which is placed below the root
	// directory; none.
	Program []byte
	// ReadProgram reads Program once the runtime is made, where that is nil, so that a
	// node with another runtime has no memory for it. It may return nil; nobody.
	ReadProgram func() ([]byte, error)
	// Monitor is the absolute path of the monitor's program, if there is no Program;
	// nodewright-monitor beside this program, or in the PATH.
	Monitor string
	// Handlers are the OCI runtimes by their names; runc and crun as the PATH has
	// them, runc being the default.
	Handlers map[string]localcri.Handler
	// Network is CNI, Bridge or None; see the package's documentation.
	Network string
	// Bridge is the network that Bridge has. StateDir and names are filled in.
	Bridge bridge.Config
	// CNI is where CNI finds its configurations and plugins. CacheDir is filled in.
	CNI cni.Config
	// PreloadDir has archives of images, which are read at the start; none.
	PreloadDir string
	// CDIDirs are the directories of specifications of CDI devices; /etc/cdi and
	// /var/run/cdi.
	CDIDirs []string
	// Registries says how registries are reached; by HTTPS, without mirrors.
	Registries map[string]image.Registry
}

// networkKey is the key beside the runtime's that has the network which the node's
// pods have.
const networkKey = "network"

// Runtime makes runtimes of nodes.
func Runtime(cfg Config) nodeagent.LocalMaker {
	return func(ctx context.Context, b *nodeagent.Builder) (*nodeagent.LocalRuntime, error) {
		m := maker{cfg: cfg, root: b.Config.RootDir, cluster: b.Config.Kubeconfig != "", driver: b.Config.CgroupDriver, log: b.Log, metrics: b.Metrics}
		r, err := m.make(ctx)
		if err != nil {
			return nil, err
		}
		return &nodeagent.LocalRuntime{
			Runtime: r.service, Images: r.images, Run: r.run, Network: r.choice.String(),
			Import: func(ctx context.Context, archive io.Reader, name string) ([]string, error) {
				return r.images.Import(ctx, archive, image.ImportOptions{Name: name})
			},
		}, nil
	}
}

// maker is what a runtime is made with.
type maker struct {
	cfg     Config
	root    string
	cluster bool
	driver  string
	log     *zap.Logger
	metrics prometheus.Registerer // nil: not exported
}

// node is a runtime with its images and its network.
type node struct {
	runtime *localcri.Runtime
	service *serve.Streaming // of runtime
	images  *image.Store
	network *network.Network
	bridge  *bridge.Plugin // nil: this kernel cannot have one
	choice  networkChoice
	keep    func(context.Context) error // records the choice
}

// passable makes the directory of all that the runtime has, which the root of a
// pod's user namespace passes through to its root file system. It comes first: what
// is made below makes its parents for itself alone.
func (m *maker) passable() error {
	dir := m.path()
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // whatever the umask, or an earlier version
}

// make makes everything, and changes nothing but the runtime's directory and the
// monitor's program in it.
func (m *maker) make(ctx context.Context) (*node, error) {
	if err := m.passable(); err != nil {
		return nil, fmt.Errorf("directory of the runtime: %w", err)
	}
	handlers, errHandlers := m.handlers()
	program, errProgram := m.program()
	if err := errors.Join(errHandlers, errProgram); err != nil {
		return nil, err
	}
	n, names := &node{}, namesFor(m.root)
	if err := m.network(n, names); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if err := m.images(n); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	devices, err := cdi.New(cdi.Config{Dirs: m.cfg.CDIDirs, Log: m.log.Named("cdi")})
	if err != nil {
		return nil, err
	}
	var host cgroups.Host
	n.runtime, err = localcri.New(localcri.Config{
		RootDir: m.path("pods"), StateDir: names.stateDir, Handlers: handlers, Monitor: program,
		PlaceMonitor: func(pid int) error { return host.Join(context.WithoutCancel(ctx), names.monitors, pid) },
		Network:      n.network, Images: n.images, CDI: devices, CgroupDriver: m.driver, Log: m.log.Named("localcri"),
	})
	if err != nil {
		return nil, err
	}
	if m.metrics != nil {
		if err := metrics.Register(m.metrics, n.runtime.Counts); err != nil {
			return nil, err
		}
	}
	n.service, err = serve.NewStreaming(n.runtime, n.runtime.Streams(), m.log.Named("streams"))
	return n, err
}

// images makes the store of images.
func (m *maker) images(n *node) (err error) {
	cfg := image.Config{RootDir: m.path("images"), Registries: m.cfg.Registries, PreloadDir: m.cfg.PreloadDir, Log: m.log.Named("image")}
	if m.metrics == nil {
		n.images, err = image.New(cfg)
		return err
	}
	observer, err := imagemetrics.New(m.metrics)
	if err != nil {
		return err
	}
	cfg.Observer = observer
	if n.images, err = image.New(cfg); err != nil {
		return err
	}
	return observer.Add(n.images.Counts)
}

func (m *maker) path(elem ...string) string {
	return filepath.Join(append([]string{m.root, "localcri"}, elem...)...)
}

func (m *maker) program() (string, error) {
	program := m.cfg.Program
	if program == nil && m.cfg.ReadProgram != nil {
		var err error
		if program, err = m.cfg.ReadProgram(); err != nil {
			return "", fmt.Errorf("read the monitor's program: %w", err)
		}
	}
	switch {
	case program != nil:
		return place(m.path("bin"), program)
	case m.cfg.Monitor != "":
		return m.cfg.Monitor, nil
	}
	return findMonitor()
}

func (m *maker) handlers() (map[string]localcri.Handler, error) {
	if len(m.cfg.Handlers) > 0 {
		return m.cfg.Handlers, nil
	}
	found, err := findExecutors()
	handlers := map[string]localcri.Handler{}
	for name, path := range found {
		handlers[name] = localcri.Handler{Path: path}
	}
	return handlers, err
}

// network chooses and makes the network. All kinds are there: each takes back what
// it has made.
func (m *maker) network(n *node, names names) error {
	store := part.OpenStore(nodeagent.RuntimeRecords(m.root), m.log)
	last, err := store.Read(networkKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("failed to read which network the node had", zap.Error(err))
	}
	cniConfig := m.cfg.CNI
	if cniConfig.ConfDir == "" {
		cniConfig.ConfDir = cni.DefaultConfDir
	}
	cniConfig.CacheDir, cniConfig.Log, cniConfig.Metrics = m.path("cni"), m.log.Named("cni"), m.metrics
	n.choice, err = chooseNetwork(machine{asked: m.cfg.Network, last: string(last), cluster: m.cluster, dir: cniConfig.ConfDir, conf: firstConf(cniConfig.ConfDir)})
	if err != nil {
		return err
	}
	if n.choice.kind != string(last) {
		n.keep = func(ctx context.Context) error {
			return part.Write(context.WithoutCancel(ctx), store, networkKey, []byte(n.choice.kind))
		}
	}
	plugins := map[string]network.Plugin{None: network.None()}
	if plugins[CNI], err = cni.New(cniConfig); err != nil {
		return err
	}
	bridgeConfig := m.cfg.Bridge
	bridgeConfig.StateDir, bridgeConfig.Name, bridgeConfig.Table, bridgeConfig.VethPrefix = m.path("bridge"), names.bridge, names.table, names.veth
	bridgeConfig.Log, bridgeConfig.Registerer = m.log.Named("bridge"), m.metrics
	switch n.bridge, err = bridge.New(bridgeConfig); {
	case err == nil:
		plugins[Bridge] = n.bridge
	case n.choice.kind == Bridge:
		return fmt.Errorf("%w; want a configuration of CNI in %s, or the network %s", err, cniConfig.ConfDir, None)
	}
	list := []network.Plugin{plugins[n.choice.kind]}
	for _, kind := range networks() {
		if p := plugins[kind]; p != nil && kind != n.choice.kind {
			list = append(list, p)
		}
	}
	cfg := network.Config{Plugins: list, StateDir: m.path("network"), Prefix: names.spaces, Log: m.log.Named("network")}
	if m.metrics == nil {
		n.network, err = network.New(cfg)
		return err
	}
	observer, err := networkmetrics.New(m.metrics)
	if err != nil {
		return err
	}
	cfg.Observer = observer
	if n.network, err = network.New(cfg); err != nil {
		return err
	}
	return observer.Add(n.network.Counts)
}

// maxConfs is how many files of a directory of configurations are looked at.
const maxConfs = 1000

// firstConf is the path of the first configuration in a directory, "" if there is none.
func firstConf(dir string) string {
	files, err := safefile.Entries(dir, maxConfs)
	if err != nil {
		return ""
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if name := confFile(names); name != "" {
		return filepath.Join(dir, name)
	}
	return ""
}

// run serves until ctx ends: the runtime first of all that ends, since it needs the
// others. The first error of any ends all.
func (n *node) run(ctx context.Context) error {
	if n.keep != nil {
		if err := n.keep(ctx); err != nil {
			return fmt.Errorf("record the node's network: %w", err)
		}
	}
	beside, endBeside := context.WithCancel(context.WithoutCancel(ctx))
	ctx, endRuntime := context.WithCancel(ctx)
	others := map[string]func(context.Context) error{"images": n.images.Run, "network": n.network.Run, "streams": n.service.Run}
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
	err := n.runtime.Run(ctx)
	endRuntime()
	endBeside()
	for range others {
		err = errors.Join(err, <-ended)
	}
	if n.bridge != nil {
		n.bridge.Close()
	}
	return err
}
