package kubeletconfig

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/gc"
)

// DefaultRootDir is the default of the kubelet's --root-dir.
const DefaultRootDir = "/var/lib/kubelet"

// Flags has the values of the kubelet's command-line flags. The exported fields are the flags that
// have no field in the configuration file. All other flags override a field of the file. Create
// Flags with [NewFlags]. A field that is set before [Flags.Bind] is the flag's default.
type Flags struct {
	ConfigFile, ConfigDir           string // --config, --config-dir
	Kubeconfig, BootstrapKubeconfig string
	RootDir, CertDir                string // the default of CertDir is ROOT_DIR/pki

	Hostname   string // --hostname-override
	NodeIP     string // one address, or one of each family, separated by a comma
	NodeLabels string // key=value, separated by commas

	CredentialProviderConfig, CredentialProviderDir string // --image-credential-provider-config and -bin-dir

	CloudProvider string // "external", or "" for none

	LockFile             string // --lock-file
	ExitOnLockContention bool

	RuntimeCgroup  string // --runtime-cgroups
	Verbosity      int    // --v
	DeadContainers gc.ContainerPolicy

	over   v1beta1.KubeletConfiguration // values of the flags that override fields
	fields map[string]any               // values of fieldFlags, by name
	bound  *flag.FlagSet                // set by Bind; nil means that no flag overrides a field
}

// externalProvider is the only cloud provider that the kubelet still supports.
const externalProvider = "external"

// NewFlags returns flags with the kubelet's defaults.
func NewFlags() *Flags {
	return &Flags{
		RootDir:        DefaultRootDir,
		DeadContainers: gc.ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1},
	}
}

// Bind defines the flags in fs. When fs is parsed, it stores their values in f. fs may also have
// other flags.
func (f *Flags) Bind(fs *flag.FlagSet) {
	f.bound = fs
	for _, t := range []struct {
		at          *string
		name, usage string
	}{
		{&f.ConfigFile, "config", "a KubeletConfiguration `file`"},
		{&f.ConfigDir, "config-dir", "a `directory` of drop-ins (*.conf) merged over --config"},
		{&f.Kubeconfig, "kubeconfig", "a kubeconfig `file` for the API server; without it the agent runs standalone"},
		{&f.BootstrapKubeconfig, "bootstrap-kubeconfig", "a kubeconfig `file` to request the first certificate with; the agent then writes --kubeconfig"},
		{&f.RootDir, "root-dir", "the `directory` of the agent's state"},
		{&f.CertDir, "cert-dir", "the `directory` of certificates; default ROOT_DIR/pki"},
		{&f.Hostname, "hostname-override", "the node's `name` instead of the hostname"},
		{&f.CloudProvider, "cloud-provider", "`external` if an external cloud provider initializes the node before it accepts pods, and sets its addresses"},
		{&f.NodeIP, "node-ip", "the node's `address`, or an IPv4 and an IPv6 address, separated by a comma"},
		{&f.CredentialProviderConfig, "image-credential-provider-config", "a CredentialProviderConfig `file`, or a directory of such files: plugins that provide image credentials"},
		{&f.CredentialProviderDir, "image-credential-provider-bin-dir", "the `directory` of the credential provider plugins"},
		{&f.RuntimeCgroup, "runtime-cgroups", "the `cgroup` of the runtime, for its usage statistics; default: the cgroup of the process that serves its socket"},
		{&f.LockFile, "lock-file", "a `file` to lock before the start; the agent waits while another program holds the lock"},
	} {
		fs.StringVar(t.at, t.name, *t.at, t.usage)
	}
	fs.BoolVar(&f.ExitOnLockContention, "exit-on-lock-contention", f.ExitOnLockContention, "exit when another program opens --lock-file")
	fs.Func("node-labels", "labels of the node: `key=value`, comma-separated; may be repeated", func(s string) error {
		f.NodeLabels += "," + s
		return nil
	})
	fs.IntVar(&f.Verbosity, "v", f.Verbosity, "log `level`: 4 and above log every step")
	dead := &f.DeadContainers
	fs.DurationVar(&dead.MinAge, "minimum-container-ttl-duration", dead.MinAge, "the minimum `duration` for which a dead container is kept")
	fs.IntVar(&dead.MaxContainers, "maximum-dead-containers", dead.MaxContainers, "the largest `number` of dead containers on the node; negative: no limit")
	fs.IntVar(&dead.MaxPerContainer, "maximum-dead-containers-per-container", dead.MaxPerContainer, "the largest `number` of dead instances of each container; negative: no limit")
	for _, s := range settings() {
		s.bind(fs, &f.over)
	}
	f.bindFields(fs)
}

// given returns the names of the flags that were on the command line.
func (f *Flags) given() map[string]bool {
	names := map[string]bool{}
	if f.bound != nil {
		f.bound.Visit(func(fl *flag.Flag) { names[fl.Name] = true })
	}
	return names
}

// Validate returns an error with all mistakes that can be found in the flags alone. [Flags.Apply]
// returns the mistakes that depend on the configuration.
func (f *Flags) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.BootstrapKubeconfig != "" && f.Kubeconfig == "" {
		bad("--bootstrap-kubeconfig=%q: requires --kubeconfig", f.BootstrapKubeconfig)
	}
	if f.RootDir == "" {
		bad("--root-dir=%q: want a directory", f.RootDir)
	}
	if f.ExitOnLockContention && f.LockFile == "" {
		bad("--exit-on-lock-contention=true: requires --lock-file")
	}
	_, hostErr := f.hostname()
	_, ipErr := f.nodeIPs()
	_, labelErr := f.nodeLabels()
	errs = append(errs, hostErr, ipErr, labelErr)
	if u := f.over.StaticPodURL; u != "" && !isWebURL(u) {
		bad("--manifest-url=%q: want an http or https URL", withoutPassword(u))
	}
	for _, e := range []text{{"container-runtime-endpoint", f.over.ContainerRuntimeEndpoint}, {"image-service-endpoint", f.over.ImageServiceEndpoint}} {
		if want := wantEndpoint(e); want != "" {
			bad("--%s=%q: want %s", e.field, e.value, want)
		}
	}
	if (f.CredentialProviderConfig == "") != (f.CredentialProviderDir == "") {
		bad("--image-credential-provider-config=%q and --image-credential-provider-bin-dir=%q: want both or neither", f.CredentialProviderConfig, f.CredentialProviderDir)
	}
	if p := f.CloudProvider; p != "" && p != externalProvider {
		bad("--cloud-provider=%q: want %s, or nothing", p, externalProvider)
	}
	if d := f.DeadContainers.MinAge; d < 0 {
		bad("--minimum-container-ttl-duration=%v: want a duration of 0 or more", d)
	}
	return errors.Join(errs...)
}

// Apply applies the flags to c, whose KubeletConfiguration must be valid, and returns an error with
// the mistakes that the flags cause. Relative paths are relative to the working directory.
func (f *Flags) Apply(c *Config) error {
	if err := f.layFields(&c.KubeletConfiguration); err != nil {
		return err
	}
	given := f.given()
	for _, s := range settings() {
		if given[s.name] {
			s.lay(&c.KubeletConfiguration, &f.over)
		}
	}
	SetDefaults(&c.KubeletConfiguration)
	c.RootDir, c.CertDir = f.RootDir, f.CertDir
	c.LockFile, c.ExitOnLockContention = f.LockFile, f.ExitOnLockContention
	orDefault(&c.CertDir, filepath.Join(f.RootDir, "pki"))
	for _, p := range []*string{&c.RootDir, &c.CertDir, &c.LockFile, &c.StaticPodPath} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	c.Kubeconfig, c.BootstrapKubeconfig = f.Kubeconfig, f.BootstrapKubeconfig
	c.CredentialProviderConfig, c.CredentialProviderDir = f.CredentialProviderConfig, f.CredentialProviderDir
	c.ExternalProvider = f.CloudProvider == externalProvider
	c.RuntimeCgroup, c.DeadContainers, c.verbosity = f.RuntimeCgroup, f.DeadContainers, f.Verbosity
	var hostErr, ipErr, labelErr error
	c.Hostname, hostErr = f.hostname()
	c.NodeIPs, ipErr = f.nodeIPs()
	c.NodeLabels, labelErr = f.nodeLabels()
	wrong := joined(withoutOwn(mistakes(&c.KubeletConfiguration), c.used), func(Mistake) string { return "invalid flags: " })
	return errors.Join(hostErr, ipErr, labelErr, wrong)
}

// withoutEffect returns warnings about flags without effect and, if the node has no cluster, about
// flags that have an effect only in a cluster. c is the result of files and flags, used is
// [Options.Used].
func (f *Flags) withoutEffect(c *Config, used []string) (warnings []string) {
	warnings = f.fieldsWithoutEffect(used)
	if c.Kubeconfig != "" {
		return warnings
	}
	given := f.given()
	for _, w := range []struct {
		is   bool
		text string
	}{
		{given["cert-dir"] && !*c.EnableServer, "--cert-dir has no effect without an API server and with enableServer: false"},
		{given["cloud-provider"], "--cloud-provider has no effect without an API server"},
		{given["register-node"], "--register-node has no effect without an API server"},
		{c.RotateCertificates, "rotateCertificates has no effect without an API server"},
		{c.ServerTLSBootstrap, "serverTLSBootstrap has no effect without an API server: the node signs its own certificate"},
	} {
		if w.is {
			warnings = append(warnings, w.text)
		}
	}
	return warnings
}
