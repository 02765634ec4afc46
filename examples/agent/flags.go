package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/devicemgr/hostdevices"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/record"
)

// runFlags are the flags of "agent run": the kubelet's, and the agent's own.
type runFlags struct {
	kubelet *kubeletconfig.Flags

	secretKeyFile    string
	secretsInClear   bool
	socket           string
	startsInFlight   int
	pullsPerRegistry int
	execProbes       int
	fastProbes       bool
	shutdownOnTerm   bool
	leaveHost        bool
	network          string
	forwardPorts     string
	reach            bridge.Reach
	preload          string
	registryHosts    string
	signaturePolicy  string
	devices          string
	pullBandwidth    string
	nriSocket        string
	localAPI         string
	bundle           string
	bundleInterval   time.Duration
	recordSize       string
	gc               gcFlags
	version          versionFlag

	all func() map[string]string // every flag with its value
}

// bind adds the flags to fs.
func (f *runFlags) bind(fs *flag.FlagSet) {
	f.kubelet.Bind(fs)
	fs.StringVar(&f.secretKeyFile, "secret-key-file", "", "a `file` with the 32-byte key that encrypts Secrets and tokens on disk; default ROOT_DIR/secret.key, created at the first start")
	fs.BoolVar(&f.secretsInClear, "secrets-in-clear", false, "do not encrypt Secrets and tokens on disk: for an encrypted disk")
	fs.StringVar(&f.socket, "socket", "", "the agent's own `socket`; default ROOT_DIR/agent.sock")
	fs.IntVar(&f.startsInFlight, "starts-in-flight", 0, "the maximum `number` of pods that start at the same time; default: the number of CPUs, at least 4")
	fs.IntVar(&f.execProbes, "exec-probes-in-flight", 0, "the maximum `number` of exec probes at the same time; default 32")
	fs.BoolVar(&f.fastProbes, "fast-probes", false, "check containers that are not ready yet more often than periodSeconds")
	fs.IntVar(&f.pullsPerRegistry, "pulls-per-registry", 0, "the maximum `number` of pulls from one registry at the same time; default: no limit")
	fs.BoolVar(&f.shutdownOnTerm, "shutdown-on-sigterm", false, "on SIGTERM, shut down all pods gracefully: for machines without logind, where SIGTERM means a shutdown")
	fs.BoolVar(&f.leaveHost, "leave-host", false, "do not change kernel parameters, the agent's own OOM score and the firewall")
	fs.StringVar(&f.network, "network", "", "the `network` of pods on the agent's own container runtime: cni, bridge or none; default cni in a cluster or if the machine has a CNI configuration, otherwise bridge")
	fs.StringVar(&f.forwardPorts, "forward-ports", "", "for users other than root: the TCP and UDP `ports` of the machine that lead to the pods' host ports, a list such as 8080,30000-30100; default the ports that listen at the time, which needs pasta 2024_10_30 or later")
	fs.Func("pods-reach-node", "the `ports` of the node's own processes that pods on the network bridge can reach: all, none, a list such as tcp/53,udp/53, or all except a list, such as !tcp/22; default all", func(s string) (err error) {
		f.reach, err = bridge.ParseReach(s)
		return err
	})
	fs.StringVar(&f.preload, "preload-images", "", "a `directory` of image archives that the agent's own container runtime loads at the start")
	fs.StringVar(&f.registryHosts, "registry-hosts", "", "a `directory` with HOST/hosts.toml files, as containerd's certs.d, for the agent's own container runtime: mirrors, certificate authorities, plain HTTP")
	fs.StringVar(&f.signaturePolicy, "signature-policy", "", "a `file` that says which images of the agent's own container runtime, and which bundles, need which signatures; default: none need one")
	fs.StringVar(&f.devices, "devices", "", "a `file` that says which devices of the machine are which extended resources, without a device plugin")
	fs.StringVar(&f.pullBandwidth, "pull-bandwidth", "", "the maximum number of `bytes` per second, such as 512Ki, at which the agent's own container runtime downloads image layers; default: no limit")
	fs.StringVar(&f.nriSocket, "nri-socket", "", "the `socket` to which plugins of the Node Resource Interface connect, such as /var/run/nri/nri.sock, for the agent's own container runtime; needs a build with -tags nri")
	fs.StringVar(&f.localAPI, "local-api", "", "serve the Kubernetes API of this node on the agent's own socket and, over TLS, at an `address` such as 127.0.0.1:6443; \"socket\" means the socket only")
	fs.StringVar(&f.bundle, "bundle", "", "run the pods of a bundle: a `reference` with a tag to poll, such as registry.example/fleet/shop:prod, or \""+onlyApplied+"\" to run only bundles of \"agent bundle apply\"")
	fs.DurationVar(&f.bundleInterval, "bundle-interval", 0, "the `duration` between two polls of --bundle, which varies by a fifth; default 1m")
	fs.StringVar(&f.recordSize, "record-size", "", "the maximum size in `bytes` of the record that \"agent why --at\" reads; default 16Mi; 0 disables the record")
	f.gc.register(fs)
	fs.Var(&f.version, "version", "print the `release` of Kubernetes that the agent behaves as; =raw adds build details; =v1.37.x+mine sets the release")
	f.all = func() map[string]string { return kubeletconfig.FlagValues(fs) }
}

// leastRecord is the smallest size of a record that package record accepts, in bytes.
const leastRecord = 1 << 20

// defaultRecord is the size of the record without a flag.
const defaultRecord = "16Mi"

func (f *runFlags) recordBytes() (int64, error) {
	return kubeletconfig.Bytes(cmp.Or(f.recordSize, defaultRecord))
}

// pullBytes returns the limit of --pull-bandwidth; 0 means no limit. Call validate first.
func (f *runFlags) pullBytes() (int64, error) {
	return kubeletconfig.Bytes(cmp.Or(f.pullBandwidth, "0"))
}

// recorded returns the maker of the part that writes the record, or none if --record-size is 0. Call
// validate first.
func (f *runFlags) recorded() []nodeagent.Maker {
	n, _ := f.recordBytes()
	if n == 0 {
		return nil
	}
	return []nodeagent.Maker{nodeagent.Record(record.Config{MaxBytes: n, Version: versionString()})}
}

// hostDevices returns the makers of the part that offers devices of the machine, if there is a file
// of them.
func (f *runFlags) hostDevices() ([]nodeagent.Maker, error) {
	if f.devices == "" {
		return nil, nil
	}
	settings, err := hostdevices.Load(f.devices)
	if err != nil {
		return nil, fmt.Errorf("--devices: %w", err)
	}
	return []nodeagent.Maker{func(b *nodeagent.Builder) (part.Part, error) {
		return hostdevices.New(hostdevices.Config{Settings: settings, Offer: b.Facts.OfferDevices, Log: b.Log.Named("hostdevices")})
	}}, nil
}

// leastInterval is the shortest interval of polls: a fleet shares a registry.
const leastInterval = 5 * time.Second

// longestSocketPath is the maximum length of a unix socket's path in bytes (unix(7)).
const longestSocketPath = 107

// validate returns one error with all mistakes.
func (f *runFlags) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.secretKeyFile != "" && f.kubelet.Kubeconfig == "" {
		bad("--secret-key-file=%q: requires --kubeconfig", f.secretKeyFile)
	}
	if f.secretsInClear && f.kubelet.Kubeconfig == "" {
		bad("--secrets-in-clear=true: requires --kubeconfig")
	}
	if f.secretKeyFile != "" && f.secretsInClear {
		bad("--secret-key-file=%q --secrets-in-clear=true: want at most one of them", f.secretKeyFile)
	}
	if len(f.socket) > longestSocketPath {
		bad("--socket=%q: want a path of at most %d bytes", f.socket, longestSocketPath)
	}
	if f.execProbes < 0 {
		bad("--exec-probes-in-flight=%d: want 1 or more, or 0 for 32", f.execProbes)
	}
	if f.pullsPerRegistry < 0 {
		bad("--pulls-per-registry=%d: want 1 or more, or 0 for any number", f.pullsPerRegistry)
	}
	if f.startsInFlight < 0 {
		bad("--starts-in-flight=%d: want 1 or more, or 0 for the default", f.startsInFlight)
	}
	if !slices.Contains([]string{"", localcri.NetworkCNI, localcri.NetworkBridge, localcri.NetworkNone}, f.network) {
		bad("--network=%q: want %s, %s or %s", f.network, localcri.NetworkCNI, localcri.NetworkBridge, localcri.NetworkNone)
	}
	for _, path := range []*string{&f.preload, &f.registryHosts, &f.signaturePolicy, &f.devices} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path) // relative paths work as in the kubelet's flags
		if err != nil {
			bad("%q: %w", *path, err)
		}
		*path = abs
	}
	if _, _, err := net.SplitHostPort(f.localAPI); f.localAPI != "" && f.localAPI != onSocket && err != nil {
		bad("--local-api=%q: want host:port, such as 127.0.0.1:6443, or %s", f.localAPI, onSocket)
	}
	if f.localAPI != "" && f.kubelet.Kubeconfig != "" {
		bad("--local-api=%q: must not be set together with --kubeconfig", f.localAPI)
	}
	if f.bundle != "" && f.bundle != onlyApplied {
		if err := bundle.CheckRef(f.bundle); err != nil {
			bad("--bundle: %w, or %s", err, onlyApplied)
		}
	}
	if f.bundleInterval != 0 && f.bundleInterval < leastInterval {
		bad("--bundle-interval=%v: want %v or more, or 0 for %v", f.bundleInterval, leastInterval, bundle.DefaultInterval)
	}
	if n, err := f.recordBytes(); err != nil || n != 0 && n < leastRecord {
		bad("--record-size=%q: want a quantity of bytes such as 16Mi, at least 1Mi, or 0 for no record", f.recordSize)
	}
	if n, err := f.pullBytes(); err != nil || n < 0 {
		bad("--pull-bandwidth=%q: want a quantity of bytes such as 512Ki, or 0 for no limit", f.pullBandwidth)
	}
	f.gc.validate(bad)
	if _, err := nodeagent.VersionInfo(f.version.release()); err != nil {
		bad("--version: %w", err)
	}
	return errors.Join(append(errs, f.kubelet.Validate())...)
}

// apiPort returns the port of --local-api, which no pod can have as a host port. It returns nil if
// there is no port, or if the port is not a number.
func (f *runFlags) apiPort() []uint16 {
	_, port, err := net.SplitHostPort(f.localAPI)
	if n, err2 := strconv.ParseUint(port, 10, 16); err == nil && err2 == nil && n > 0 {
		return []uint16{uint16(n)}
	}
	return nil
}
