package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr/filesink"
)

// wellKnownSockets are tried in order when no runtime is named: those of
// containerd, CRI-O, cri-dockerd and k3s.
var wellKnownSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock",
}

func runAgent(ctx context.Context, std stdio, args []string) error {
	f, err := parseRunFlags(std, args)
	if err != nil {
		return err
	}
	conf, warnings, err := loadConfig(f.config, f.configDir)
	if err != nil {
		return err
	}
	if err := applyFlags(conf, f); err != nil {
		return err
	}
	log, level := newLogger(max(f.verbosity, int(conf.Logging.Verbosity)))
	defer func() { _ = log.Sync() }()
	for _, w := range warnings {
		log.Warn("configuration", zap.String("warning", w))
	}
	for _, name := range []string{"cert-dir", "register-node"} {
		if f.set[name] && f.kubeconfig == "" {
			log.Warn("configuration", zap.String("warning", "--"+name+" has no effect without an API server"))
		}
	}
	tuneMemory()
	var machine shutdown.Machine
	if f.shutdownOnTerm {
		var stop func()
		ctx, machine, stop = endsWithMachine(ctx)
		defer stop()
	}

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	endpoint := conf.ContainerRuntimeEndpoint
	if endpoint == "" {
		if endpoint, err = cri.Find(ctx, wellKnownSockets); err != nil {
			return err
		}
		log.Info("container runtime found", zap.String("endpoint", endpoint))
	}
	client, err := cri.New(cri.Config{
		Endpoint: endpoint, ImageEndpoint: conf.ImageServiceEndpoint,
		Timeout: conf.RuntimeRequestTimeout.Duration, Log: log.Named("cri"), Metrics: reg,
	})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()

	cfg, err := agentConfig(f, conf, client, log, reg)
	if err != nil {
		return err
	}
	cfg.SystemCgroups = newHostCgroups(ctx, conf, f.runtimeCgroup, endpoint, log).all
	var a *agent.Agent // it asks for cgroups when it runs, not before
	own := func(pod *v1.Pod) bool { return a.OwnCPUs(pod) }
	if cfg.Cgroups, err = podCgroups(ctx, conf, cfg.Node, client, own, log, reg); err != nil {
		return err
	}
	if cfg.Eviction, err = evictionOf(conf, cfg.Cgroups, f.kubeconfig == ""); err != nil {
		return err
	}
	cfg.OOM, cfg.Shutdown = &agent.OOM{}, shutdownOf(conf, machine, log)
	if err := devicesOf(&cfg, log, reg); err != nil {
		return err
	}
	var cl *cluster
	if f.kubeconfig != "" {
		if cl, err = join(f, conf, &cfg, client, log, reg); err != nil {
			return err
		}
	}
	a, err = agent.New(cfg)
	if err != nil {
		return err
	}
	var parts []part
	if cl != nil {
		cl.attach(a)
		parts = append(parts, part{"cluster", func(ctx context.Context) error { return cl.run(ctx, log) }})
	}
	d := doors{
		flags: f, conf: conf, agent: a, cluster: cl, node: cfg.Node, runtime: client,
		checks: checksOf(a, conf, cfg.Devices), level: level, log: log, reg: reg,
	}
	open, err := d.parts()
	if err != nil {
		return err
	}
	parts = append(parts, open...)
	stop := begin(ctx, parts, log)
	defer stop()
	return serve(ctx, a, f, reg, log)
}

// part is something beside the agent that runs as long as it does.
type part struct {
	name string
	run  func(context.Context) error
}

// begin starts the parts. They end when stop is called, which is after the
// agent: a node that takes its time to end lives meanwhile. One that fails is
// logged: the pods matter more.
func begin(ctx context.Context, parts []part, log *zap.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			if err := p.run(ctx); err != nil {
				log.Error(p.name+" has ended", zap.Error(err))
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// serve runs the agent and its socket until ctx ends. What goes wrong with the
// socket is logged: the pods matter more.
func serve(ctx context.Context, a *agent.Agent, f *runFlags, reg *prometheus.Registry, log *zap.Logger) error {
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case err := <-done: // it could not begin
		return err
	case <-a.Ready():
	}
	handler := local.Handler(a, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	socket := f.socket
	if socket == "" {
		socket = filepath.Join(f.rootDir, "agent.sock")
	}
	if l, err := local.Listen(socket); err != nil {
		log.Error("agent socket cannot be opened", zap.Error(err))
	} else {
		go func() { _ = srv.Serve(l) }()
		defer func() { _ = os.Remove(socket) }()
	}
	defer func() { _ = srv.Close() }()
	log.Info("agent runs", zap.String("version", versionString()), zap.String("socket", socket))
	notify(log, daemon.SdNotifyReady)
	go trimMemory(ctx)

	err := <-done
	notify(log, daemon.SdNotifyStopping)
	log.Info("agent ends; containers keep running")
	return err
}

// applyFlags lays the flags over the configuration: flags win.
func applyFlags(c *kubeletconfig.KubeletConfiguration, f *runFlags) error {
	if f.set["container-runtime-endpoint"] {
		c.ContainerRuntimeEndpoint = f.runtimeEndpoint
	}
	if f.set["image-service-endpoint"] {
		c.ImageServiceEndpoint = f.imageEndpoint
	}
	if f.set["pod-manifest-path"] {
		c.StaticPodPath = f.manifests
	}
	if f.set["manifest-url"] {
		c.StaticPodURL = f.manifestURL
	}
	if err := errors.Join(f.eviction.apply(c, f.set), shutdownFlagAlone(c, f)); err != nil {
		return err
	}
	if f.certDir == "" {
		f.certDir = filepath.Join(f.rootDir, "pki")
	}
	for _, p := range []*string{&f.rootDir, &f.certDir, &c.StaticPodPath} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if c.StaticPodPath == "" && c.StaticPodURL == "" && f.kubeconfig == "" {
		return errors.New("nothing to run: give --pod-manifest-path, or staticPodPath or staticPodURL in --config, or --kubeconfig")
	}
	if c.FailCgroupV1 != nil && *c.FailCgroupV1 && !agent.CgroupV2() {
		return errors.New("invalid configuration: failCgroupV1: true: this machine has cgroup v1; want false here")
	}
	return nil
}

func agentConfig(f *runFlags, c *kubeletconfig.KubeletConfiguration, client *cri.Client, log *zap.Logger, reg *prometheus.Registry) (agent.Config, error) {
	node, err := nodeOf(f, c)
	if err != nil {
		log.Warn("the machine could not be read in full", zap.Error(err))
	}
	var sources []podmgr.Source
	if c.StaticPodPath != "" {
		memory, err := openStore(filepath.Join(f.rootDir, "manifests"), log)
		if err != nil {
			return agent.Config{}, err
		}
		s, err := podmgr.Directory(podmgr.DirectoryConfig{
			Path: c.StaticPodPath, NodeName: node.Name, Rescan: c.FileCheckFrequency.Duration,
			Memory: memory, Log: log.Named("podmgr"),
		})
		if err != nil {
			return agent.Config{}, err
		}
		sources = append(sources, s)
	}
	if c.StaticPodURL != "" {
		s, err := podmgr.HTTP(podmgr.HTTPConfig{
			URL: c.StaticPodURL, Header: c.StaticPodURLHeader, NodeName: node.Name,
			Interval: c.HTTPCheckFrequency.Duration, Log: log.Named("podmgr"),
		})
		if err != nil {
			return agent.Config{}, err
		}
		sources = append(sources, s)
	}
	placement, err := placementOf(f.rootDir, c, node.Capacity, readMachine)
	if err != nil {
		return agent.Config{}, err
	}
	rings, err := keyrings(f)
	if err != nil {
		return agent.Config{}, err
	}
	statuses, err := filesink.New(filesink.Config{
		Dir: filepath.Join(f.rootDir, "status"),
		OnCorrupt: func(file, setAside string, err error) {
			log.Warn("damaged status set aside", zap.String("file", file), zap.String("as", setAside), zap.Error(err))
		},
	})
	if err != nil {
		return agent.Config{}, err
	}
	cfg := agent.Config{
		GC:       gcOf(&f.gc, c),
		Keyrings: rings, Sink: statuses, Placement: placement,
		Node: node, RootDir: f.rootDir, PodLogsDir: c.PodLogsDir,
		Runtime: client, Images: client, Sources: sources,
		SyncFrequency: c.SyncFrequency.Duration, StartsInFlight: f.startsInFlight,
		PullQPS: float64(*c.RegistryPullQPS), PullBurst: int(c.RegistryBurst), ParallelPulls: parallelPulls(c),
		ParallelPullsPerRegistry: f.pullsPerRegistry, ParallelExecProbes: f.execProbes, FastProbes: f.fastProbes,
		ClusterDomain: c.ClusterDomain, ClusterDNS: c.ClusterDNS, ResolvConf: *c.ResolverConfig,
		SeccompDefault: *c.SeccompDefault, UnsafeSysctls: c.AllowedUnsafeSysctls, Log: log, Metrics: reg,
		VerifyPulls:   images.Verify(c.ImagePullCredentialsVerificationPolicy),
		PullAllowlist: c.PreloadedImagesVerificationAllowlist,
		NoCPUQuota:    !*c.CPUCFSQuota, CPUPeriod: c.CPUCFSQuotaPeriod.Duration, SingleProcessOOMKill: *c.SingleProcessOOMKill,
	}
	if *c.ResolverConfig == "" {
		cfg.ResolvConf = "-"
	}
	if err := withDRA(&cfg, log, reg); err != nil {
		return agent.Config{}, err
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil {
		cfg.MaxCrashBackoff = d.Duration
	}
	return cfg, nil
}

// parallelPulls is how many images are pulled at a time; 0 means any number.
func parallelPulls(c *kubeletconfig.KubeletConfiguration) int {
	switch {
	case *c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	default:
		return 0
	}
}

// nodeOf describes this machine as flags and configuration say.
func nodeOf(f *runFlags, c *kubeletconfig.KubeletConfiguration) (agent.Node, error) {
	pods := int64(c.MaxPods)
	if n := int64(c.PodsPerCore) * int64(runtime.NumCPU()); n > 0 && n < pods {
		pods = n
	}
	dir := f.rootDir
	if _, err := os.Stat(dir); err != nil {
		dir = "/"
	}
	node, err := agent.DetectNode(dir, pods)
	if f.hostname != "" {
		node.Name = f.hostname
	}
	if ips, _ := f.ips(); len(ips) > 0 { // checked with the flags
		node.IPs = nodeIPs(ips, node.IPs, interfaceIPs())
	}
	node.Labels, _ = f.labels() // checked with the flags
	node.Allocatable = divided(c, node.Capacity).Allocatable()
	return node, err
}

// nodeIPs are the node's addresses: those asked for, or, for a lone 0.0.0.0 or
// ::, one of that family. A machine that has none keeps the detected ones.
func nodeIPs(asked, detected, all []string) []string {
	want := net.ParseIP(asked[0])
	if !want.IsUnspecified() {
		return asked
	}
	for _, s := range slices.Concat(detected, all) {
		if ip := net.ParseIP(s); ip.IsGlobalUnicast() && (ip.To4() == nil) == (want.To4() == nil) {
			return []string{s}
		}
	}
	return detected
}

func interfaceIPs() (ips []string) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP.String())
		}
	}
	return ips
}

// tuneMemory trades a little CPU for a small heap, unless the environment
// says otherwise: an agent is idle nearly always.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

func version(_ context.Context, std stdio, args []string) error {
	extra, err := parseNames(flag.NewFlagSet("agent version", flag.ContinueOnError), std, args)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("version takes no argument, got %q", extra[0])
	}
	_, err = fmt.Fprintln(std.out, "agent "+versionString())
	return err
}

func versionString() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
	}
	return v + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
