package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent"
)

// runFlags are the flags of "agent run": the kubelet's, and the agent's own.
type runFlags struct {
	kubelet *kubeletconfig.Flags

	secretKeyFile    string
	secretCredential string
	secretsInClear   bool
	socket           string
	startsInFlight   int
	pullsPerRegistry int
	execProbes       int
	fastProbes       bool
	shutdownOnTerm   bool
	leaveHost        bool
	network          string
	preload          string
	registryHosts    string
	localAPI         string
	localUI          bool
	gc               gcFlags
	version          versionFlag

	all func() map[string]string // every flag with its value
}

func newRunFlags() (*flag.FlagSet, *runFlags) {
	f := &runFlags{kubelet: kubeletconfig.NewFlags()}
	fs := flag.NewFlagSet("agent run", flag.ContinueOnError)
	f.kubelet.Bind(fs)
	fs.StringVar(&f.secretKeyFile, "secret-key-file", "", "the `file` of the key of 32 bytes that Secrets and tokens are kept encrypted with, for starts without a network; ROOT_DIR/secret.key, made at the first start")
	fs.StringVar(&f.secretCredential, "secret-key-credential", "", "the `name` of a credential of the agent's systemd service that is that key")
	fs.BoolVar(&f.secretsInClear, "secrets-in-clear", false, "keep Secrets and tokens without encrypting them: for a disk that is encrypted itself")
	fs.StringVar(&f.socket, "socket", "", "the agent's own `socket`; ROOT_DIR/agent.sock")
	fs.IntVar(&f.startsInFlight, "starts-in-flight", 0, "the `number` of pods that start at a time; 4")
	fs.IntVar(&f.execProbes, "exec-probes-in-flight", 0, "the `number` of probes that run commands in containers at a time; 32")
	fs.BoolVar(&f.fastProbes, "fast-probes", false, "look at containers that are not ready yet more often than once a period")
	fs.IntVar(&f.pullsPerRegistry, "pulls-per-registry", 0, "the `number` of images that are pulled from one registry at a time; any")
	fs.BoolVar(&f.shutdownOnTerm, "shutdown-on-sigterm", false, "end all pods in order on SIGTERM: for machines without logind, where it means that the machine goes down")
	fs.BoolVar(&f.leaveHost, "leave-host", false, "leave the machine as it is: parameters of the kernel, the agent's own OOM score and the firewall")
	fs.StringVar(&f.network, "network", "", "how pods get their `addresses` on the agent's own container runtime: cni, bridge or none; cni, if the machine has a configuration of it or is one of a cluster, else bridge")
	fs.StringVar(&f.preload, "preload-images", "", "a `directory` of archives of images that the agent's own container runtime reads at the start")
	fs.StringVar(&f.registryHosts, "registry-hosts", "", "a `directory` that says how the agent's own container runtime reaches registries, HOST/hosts.toml as in containerd's certs.d: mirrors, authorities, plain HTTP")
	fs.StringVar(&f.localAPI, "local-api", "", "serve the Kubernetes API of this node at an `address` by TLS, such as 127.0.0.1:6443, and on the agent's own socket; \"socket\" is there alone")
	fs.BoolVar(&f.localUI, "local-api-ui", false, "serve the page of agent ui below /ui/ at the address of --local-api as well, to its clients")
	f.gc.register(fs)
	fs.Var(&f.version, "version", "print the `release` of Kubernetes that the agent behaves as, or =raw with what it was built of; =v1.37.x+mine sets it")
	return fs, f
}

func parseRunFlags(std stdio, args []string) (*runFlags, error) {
	fs, f := newRunFlags()
	extra, err := parseNames(fs, std, args)
	if err != nil {
		return nil, err
	}
	if len(extra) > 0 {
		return nil, fmt.Errorf("run takes no argument, got %q", extra[0])
	}
	f.all = func() map[string]string { return kubeletconfig.FlagValues(fs) }
	if f.version.asked() {
		return f, nil
	}
	return f, f.validate()
}

// longestSocketPath is what fits into a sockaddr_un beside its final zero
// (unix(7)).
const longestSocketPath = 107

// validate reports every mistake at once.
func (f *runFlags) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.secretKeyFile != "" && f.kubelet.Kubeconfig == "" {
		bad("--secret-key-file=%q: want --kubeconfig beside it", f.secretKeyFile)
	}
	if f.secretCredential != "" && f.kubelet.Kubeconfig == "" {
		bad("--secret-key-credential=%q: want --kubeconfig beside it", f.secretCredential)
	}
	if f.secretsInClear && f.kubelet.Kubeconfig == "" {
		bad("--secrets-in-clear=true: want --kubeconfig beside it")
	}
	if f.secretKeyFile != "" && f.secretCredential != "" || f.secretsInClear && f.secretKeyFile+f.secretCredential != "" {
		bad("--secret-key-file=%q --secret-key-credential=%q --secrets-in-clear=%t: want at most one of them", f.secretKeyFile, f.secretCredential, f.secretsInClear)
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
	for _, path := range []*string{&f.preload, &f.registryHosts} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path) // as the kubelet's flags
		if err != nil {
			bad("%q: %w", *path, err)
		}
		*path = abs
	}
	if _, _, err := net.SplitHostPort(f.localAPI); f.localAPI != "" && f.localAPI != onSocket && err != nil {
		bad("--local-api=%q: want host:port, such as 127.0.0.1:6443, or %s", f.localAPI, onSocket)
	}
	if f.localAPI != "" && f.kubelet.Kubeconfig != "" {
		bad("--local-api=%q: want no --kubeconfig beside it", f.localAPI)
	}
	if f.localUI && (f.localAPI == "" || f.localAPI == onSocket) {
		bad("--local-api-ui: want --local-api=ADDRESS beside it, got %q", f.localAPI)
	}
	f.gc.validate(bad)
	if _, err := nodeagent.VersionInfo(f.version.release()); err != nil {
		bad("--version: %w", err)
	}
	return errors.Join(append(errs, f.kubelet.Validate())...)
}
