package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// runFlags are the flags of "agent run", by the kubelet's names.
type runFlags struct {
	config, configDir string
	kubeconfig        string

	bootstrapKubeconfig string
	secretKeyFile       string

	rootDir          string
	hostname         string
	nodeIP           string
	nodeLabels       string
	certDir          string
	registerNode     bool
	manifests        string
	manifestURL      string
	runtimeEndpoint  string
	imageEndpoint    string
	verbosity        int
	socket           string
	startsInFlight   int
	pullsPerRegistry int
	execProbes       int
	fastProbes       bool
	providerConfig   string
	providerDir      string
	runtimeCgroup    string
	eviction         evictionFlags
	shutdownOnTerm   bool
	gc               gcFlags

	set map[string]bool          // names of the flags that were given
	all func() map[string]string // every flag with its value
}

const defaultRootDir = "/var/lib/kubelet"

func newRunFlags() (*flag.FlagSet, *runFlags) {
	f := &runFlags{}
	fs := flag.NewFlagSet("agent run", flag.ContinueOnError)
	fs.StringVar(&f.config, "config", "", "a KubeletConfiguration `file`")
	fs.StringVar(&f.configDir, "config-dir", "", "a `directory` of drop-ins (*.conf) merged over --config")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "a `file` that says how to reach the API server; without one the agent runs alone")
	fs.StringVar(&f.bootstrapKubeconfig, "bootstrap-kubeconfig", "", "a kubeconfig `file` to ask for the first certificate with; --kubeconfig is written then")
	fs.StringVar(&f.secretKeyFile, "secret-key-file", "", "a `file` with a key of 32 bytes that Secrets are kept encrypted with, for starts without a network")
	fs.StringVar(&f.rootDir, "root-dir", defaultRootDir, "the `directory` of the agent's state")
	fs.StringVar(&f.hostname, "hostname-override", "", "the node's `name` instead of the hostname")
	fs.StringVar(&f.nodeIP, "node-ip", "", "the node's `address`, or two, one of each family, with a comma between")
	fs.Func("node-labels", "labels of the node, `key=value` with commas between; may be given more than once", func(s string) error {
		f.nodeLabels += "," + s
		return nil
	})
	fs.StringVar(&f.certDir, "cert-dir", "", "the `directory` of certificates; ROOT_DIR/pki")
	fs.BoolVar(&f.registerNode, "register-node", true, "make the Node object, in a cluster")
	fs.StringVar(&f.manifests, "pod-manifest-path", "", "the `directory` (or file) of pod manifests")
	fs.StringVar(&f.manifestURL, "manifest-url", "", "a `URL` that answers with pod manifests")
	fs.StringVar(&f.runtimeEndpoint, "container-runtime-endpoint", "", "the runtime's `socket`; else the first well-known one that answers")
	fs.StringVar(&f.imageEndpoint, "image-service-endpoint", "", "the image service's `socket`, if it is another")
	fs.StringVar(&f.providerConfig, "image-credential-provider-config", "", "a CredentialProviderConfig `file`: programs that know credentials for images")
	fs.StringVar(&f.providerDir, "image-credential-provider-bin-dir", "", "the `directory` of these programs")
	fs.StringVar(&f.runtimeCgroup, "runtime-cgroups", "", "the `cgroup` of the runtime, whose usage is told; else that of the process behind its socket")
	fs.IntVar(&f.verbosity, "v", 0, "log `level`: 4 and above log every step")
	fs.StringVar(&f.socket, "socket", "", "the agent's own `socket`; ROOT_DIR/agent.sock")
	fs.IntVar(&f.startsInFlight, "starts-in-flight", 0, "the `number` of pods that start at a time; 4")
	fs.IntVar(&f.execProbes, "exec-probes-in-flight", 0, "the `number` of probes that run commands in containers at a time; 32")
	fs.BoolVar(&f.fastProbes, "fast-probes", false, "look at containers that are not ready yet more often than once a period")
	fs.IntVar(&f.pullsPerRegistry, "pulls-per-registry", 0, "the `number` of images that are pulled from one registry at a time; any")
	fs.BoolVar(&f.shutdownOnTerm, "shutdown-on-sigterm", false, "end all pods in order on SIGTERM: for machines without logind, where it means that the machine goes down")
	f.eviction.register(fs)
	f.gc.register(fs)
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
	f.set, f.all = map[string]bool{}, func() map[string]string { return flagsOf(fs) }
	fs.Visit(func(fl *flag.Flag) { f.set[fl.Name] = true })
	return f, f.validate()
}

// longestSocketPath is what fits into a sockaddr_un beside its final zero
// (unix(7)).
const longestSocketPath = 107

// validate reports every mistake at once.
func (f *runFlags) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for name, value := range map[string]string{"bootstrap-kubeconfig": f.bootstrapKubeconfig, "secret-key-file": f.secretKeyFile} {
		if value != "" && f.kubeconfig == "" {
			bad("--%s=%q: want --kubeconfig beside it", name, value)
		}
	}
	if f.rootDir == "" {
		bad("--root-dir=%q: want a directory", f.rootDir)
	}
	if given := f.hostname; given != "" {
		f.hostname = strings.ToLower(strings.TrimSpace(given))
		if msgs := validation.IsDNS1123Subdomain(f.hostname); len(msgs) > 0 {
			bad("--hostname-override=%q: %s", given, msgs[0])
		}
	}
	if _, err := f.ips(); err != nil {
		errs = append(errs, err)
	}
	if _, err := f.labels(); err != nil {
		errs = append(errs, err)
	}
	if f.manifestURL != "" && !isWebURL(f.manifestURL) {
		bad("--manifest-url=%q: want an http or https URL", f.manifestURL)
	}
	for _, e := range []struct{ flag, socket string }{
		{"container-runtime-endpoint", f.runtimeEndpoint}, {"image-service-endpoint", f.imageEndpoint},
	} {
		if e.socket != "" && !isSocket(e.socket) {
			bad("--%s=%q: want unix:///path or an absolute path", e.flag, e.socket)
		}
	}
	if (f.providerConfig == "") != (f.providerDir == "") {
		bad("--image-credential-provider-config=%q and --image-credential-provider-bin-dir=%q: want both or neither", f.providerConfig, f.providerDir)
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
	f.gc.validate(bad)
	return errors.Join(errs...)
}

func isSocket(s string) bool { return filepath.IsAbs(strings.TrimPrefix(s, "unix://")) }

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// ips reads --node-ip. A lone 0.0.0.0 or :: asks for any address of that
// family.
func (f *runFlags) ips() ([]string, error) {
	if f.nodeIP == "" {
		return nil, nil
	}
	var ips []string
	for s := range strings.SplitSeq(f.nodeIP, ",") {
		ip := net.ParseIP(strings.TrimSpace(s))
		if ip == nil {
			return nil, fmt.Errorf("--node-ip=%q: %q is not an IP address", f.nodeIP, s)
		}
		if ip.IsMulticast() || ip.IsUnspecified() && strings.Contains(f.nodeIP, ",") {
			return nil, fmt.Errorf("--node-ip=%q: %q is not the address of a machine", f.nodeIP, s)
		}
		ips = append(ips, ip.String())
	}
	is4 := func(s string) bool { return net.ParseIP(s).To4() != nil }
	if len(ips) > 2 || len(ips) == 2 && is4(ips[0]) == is4(ips[1]) {
		return nil, fmt.Errorf("--node-ip=%q: want one address, or one of IPv4 and one of IPv6", f.nodeIP)
	}
	return ips, nil
}

// nodeLabelsAllowed are the labels of the kubernetes.io and k8s.io domains
// that a node may give itself beside those of kubelet.kubernetes.io and
// node.kubernetes.io (KEP-279, NodeRestriction).
var nodeLabelsAllowed = []string{
	v1.LabelHostname, v1.LabelInstanceType, v1.LabelInstanceTypeStable, v1.LabelOSStable, v1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
}

func nodeLabelAllowed(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok || slices.Contains(nodeLabelsAllowed, key) {
		return true
	}
	in := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
	if in("kubelet.kubernetes.io") || in("node.kubernetes.io") {
		return true
	}
	return !in("kubernetes.io") && !in("k8s.io")
}

// labels reads --node-labels.
func (f *runFlags) labels() (map[string]string, error) {
	all := map[string]string{}
	for s := range strings.SplitSeq(f.nodeLabels, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--node-labels: %q: want key=value", s)
		}
		all[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	var denied []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			return nil, fmt.Errorf("--node-labels: key %q: %s", key, msgs[0])
		}
		if msgs := validation.IsValidLabelValue(all[key]); len(msgs) > 0 {
			return nil, fmt.Errorf("--node-labels: %s=%q: %s", key, all[key], msgs[0])
		}
		if !nodeLabelAllowed(key) {
			denied = append(denied, key)
		}
	}
	if len(denied) > 0 {
		return nil, fmt.Errorf("--node-labels: %s: of the kubernetes.io and k8s.io domains only kubelet.kubernetes.io/*, node.kubernetes.io/* and %s are allowed",
			strings.Join(denied, ", "), strings.Join(nodeLabelsAllowed, ", "))
	}
	return all, nil
}
