package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/nodeagent"
	nodebundle "github.com/nodewright/nodewright/nodeagent/bundle"
	"github.com/nodewright/nodewright/nodeagent/cluster"
	"github.com/nodewright/nodewright/nodeagent/csi"
	"github.com/nodewright/nodewright/nodeagent/localcri"
	"github.com/nodewright/nodewright/nodeagent/rootless"
	"github.com/nodewright/nodewright/signature"
)

// newRun returns the command that runs the agent, and the command's flags.
func newRun(std stdio) (*cobra.Command, *runFlags) {
	f := &runFlags{kubelet: kubeletconfig.NewFlags()}
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent (the default)", SuggestFor: []string{"start"},
		Example: "  agent run --pod-manifest-path /etc/nodewright/manifests\n  agent run --config /etc/nodewright/agent.yaml --local-api 127.0.0.1:6443\n  agent run --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.version.asked() {
				return f.version.print(std.out)
			}
			if err := f.validate(); err != nil {
				return err
			}
			return runAgent(cmd.Context(), std, f, cmd.Root().Name())
		},
	}
	// Package kubeletconfig defines flags of package flag, since programs that embed the agent use it.
	fs := flag.NewFlagSet("agent run", flag.ContinueOnError)
	f.bind(fs)
	cmd.Flags().AddGoFlagSet(fs)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Value = goFlag{f.Value, fs, f.Name} })
	completeFlag(cmd, "network", oneOf(runtime.NetworkCNI, runtime.NetworkBridge, runtime.NetworkNone))
	return cmd, f
}

// goFlag is a pflag for a flag in a FlagSet of package flag. It sets the flag in that FlagSet, which
// then knows that the flag was given.
type goFlag struct {
	pflag.Value
	set  *flag.FlagSet
	name string
}

func (f goFlag) Set(s string) error { return f.set.Set(f.name, s) }

func runAgent(ctx context.Context, std stdio, f *runFlags, program string) error {
	// With a stricter umask of the service, containers of other users could not read files of their pods.
	syscall.Umask(0o022)
	rootDir, err := ownRootDir(f.kubelet.RootDir)
	if err != nil {
		return err
	}
	f.kubelet.RootDir = rootDir
	if err := rootless.Enter(ctx, rootless.Config{RootDir: rootDir, Ports: f.forwardPorts}); err != nil {
		return fmt.Errorf("%w\nor run it as root: sudo %s run", err, program)
	}
	conf, warnings, err := loadConfig(f)
	if err != nil {
		return err
	}
	devices, err := f.hostDevices()
	if err != nil {
		return err
	}
	log, level, err := openLog(conf)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	for _, w := range warnings {
		log.Warn("questionable setting in the configuration", zap.String("warning", w))
	}
	if rootless.Inside() {
		log.Warn("agent runs without root", zap.Strings("limits", rootless.Limits(ctx, f.forwardPorts)), zap.String("see", "docs/guides/rootless.md"))
	}
	if err := nodeagent.RaiseLimits(conf); err != nil {
		log.Warn("failed to change limits of the process", zap.Error(err))
	}
	o := nodeOptions(f, conf)
	o.Parts = append(o.Parts, devices...)
	local := f.ownRuntime(conf.RootDir)
	if local.Hooks, err = f.hooks(log); err != nil {
		return err
	}
	var bundles nodebundle.Config
	if f.signaturePolicy != "" {
		policy, err := signature.Load(f.signaturePolicy, log.Named("signature"))
		if err != nil {
			return fmt.Errorf("--signature-policy: %w", err)
		}
		local.Verify, bundles.Verify = policy, policy.Verify
	}
	own := false // whether the agent's own runtime was chosen
	o.LocalRuntime = func(ctx context.Context, b *nodeagent.Builder) (*nodeagent.LocalRuntime, error) {
		own = true
		return localcri.Runtime(local)(ctx, b)
	}
	o.Log, o.LogLevel, o.Metrics = log, level, prometheus.NewRegistry()
	o.Metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Services = append(o.Services, tellConfig(conf, f.kubelet))
	runBundles(&o, f, bundles) // before the API, which shows the pods of all sources
	serveLocalAPI(&o, f)
	if f.shutdownOnTerm {
		var stop func()
		ctx, o.Machine, stop = endsWithMachine(ctx)
		defer stop()
	}
	n, err := nodeagent.New(ctx, o)
	if err != nil {
		return err
	}
	if f.signaturePolicy != "" && !own {
		log.Warn("signature policy has no effect on images, since another container runtime pulls them", zap.String("--signature-policy", f.signaturePolicy))
	}
	running, end := context.WithCancel(ctx)
	defer end()
	go announce(running, n, log, std, o.Socket, program)
	return n.Run(ctx)
}

// ownRuntime returns the configuration of the agent's own runtime, without hooks and signatures.
// Call validate first.
func (f *runFlags) ownRuntime(rootDir string) runtime.InProcessConfig {
	bandwidth, _ := f.pullBytes()
	c := runtime.InProcessConfig{
		Network: f.network, Bridge: bridge.Config{Reach: f.reach, Reserved: f.apiPort(), ListenOnHostPorts: rootless.Inside()},
		PreloadDir: f.preload, HostsDir: f.registryHosts, PullBytesPerSecond: bandwidth,
	}
	if rootless.Inside() {
		c.StreamsSocket = filepath.Join(rootDir, "streams.sock") // nobody else sees /run of the namespaces
	}
	return c
}

// announce logs that the agent runs. On a terminal it also prints the agent's state, once all
// sources have delivered their pods, or after settleTimeout.
func announce(ctx context.Context, n *nodeagent.Node, log *zap.Logger, std stdio, socket, program string) {
	select {
	case <-n.Up():
		log.Info("agent runs", zap.String("version", versionString()), zap.String("socket", socket))
	case <-ctx.Done():
		return
	}
	select {
	case <-n.Settled():
	case <-time.After(settleTimeout):
	case <-ctx.Done():
		return
	}
	printStart(ctx, std, socket, program)
}

// settleTimeout limits the wait for the sources of pods, such as an API server, before the agent
// prints its state.
const settleTimeout = 5 * time.Second

// containerLogs is the directory of links to logs, independent of podLogsDir. Log collectors expect
// this directory (a constant of the kubelet).
const containerLogs = "/var/log/containers"

// linksDir returns the directory of links to logs. An ordinary user has one next to podLogsDir.
func linksDir() string {
	if rootless.Inside() {
		return ""
	}
	return containerLogs
}

// rootPodLogs is the default of podLogsDir.
const rootPodLogs = "/var/log/pods"

// ownRootDir returns dir for root. For another user, it returns an absolute path, and the default of
// the user instead of the default of root.
func ownRootDir(dir string) (string, error) {
	own := rootless.RootDir()
	switch {
	case own == "":
		return dir, nil
	case dir == "" || dir == kubeletconfig.DefaultRootDir:
		return own, nil
	}
	return filepath.Abs(dir)
}

// nodeOptions returns the options of a whole node from flags and configuration.
func nodeOptions(f *runFlags, conf *kubeletconfig.Config) nodeagent.Options {
	return nodeagent.Options{
		Config: conf, Parts: slices.Concat(f.recorded(), exporter(), []nodeagent.Maker{csi.Volumes}, nodeagent.Standard()), Services: nodeagent.StandardServices(), Join: cluster.Join, Flags: f.all,
		KubernetesVersion: f.version.release(),
		Settings: nodeagent.Settings{
			SecretKeyFile: f.secretKeyFile, SecretsInClear: f.secretsInClear,
			Socket:         cmp.Or(f.socket, filepath.Join(conf.RootDir, "agent.sock")),
			StartsInFlight: f.startsInFlight, PullsPerRegistry: f.pullsPerRegistry, ExecProbes: f.execProbes, FastProbes: f.fastProbes,
			PodLogBudget: f.gc.budgetBytes(), PinnedImages: f.gc.pinned(), LeaveHost: f.leaveHost || rootless.Inside(), ContainerLogs: linksDir(),
		},
	}
}

// loadConfig returns the configuration from files and flags, with warnings, or an error if the
// agent cannot run with it.
func loadConfig(f *runFlags) (*kubeletconfig.Config, []string, error) {
	c, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: f.kubelet, Used: moreFields})
	if err != nil {
		return nil, nil, err
	}
	if rootless.Inside() {
		withoutRoot(c)
	}
	return c, warnings, runnable(c, f)
}

// withoutRoot replaces defaults that only root can use. The sockets of other runtimes are for root too.
func withoutRoot(c *kubeletconfig.Config) {
	c.ContainerRuntimeEndpoint = cmp.Or(c.ContainerRuntimeEndpoint, nodeagent.InProcess)
	if c.PodLogsDir == rootPodLogs {
		c.PodLogsDir = filepath.Join(c.RootDir, "logs", "pods")
	}
}

// runnable returns an error if this agent cannot run with a valid configuration.
func runnable(c *kubeletconfig.Config, f *runFlags) error {
	if err := shutdownFlagAlone(c, f); err != nil {
		return err
	}
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.Kubeconfig == "" && f.localAPI == "" && f.bundle == "" {
		return errors.New("nothing to run: give --pod-manifest-path, or staticPodPath or staticPodURL in --config, or --kubeconfig, or --local-api, or --bundle")
	}
	return nodeagent.Supported(c)
}
