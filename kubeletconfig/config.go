package kubeletconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/internal/manifestwords"
)

// Config is the validated configuration of a node, from files, flags and defaults. Pointers are
// not nil where the kubelet has a default. The caller owns it.
//
// Each method returns the configuration of one package of this module, or one value. The methods
// expect a Config from [Load], or a Config whose KubeletConfiguration was passed to [SetDefaults]
// and [Validate].
type Config struct {
	v1beta1.KubeletConfiguration

	// RootDir is the directory of the node's state, CertDir the directory of its certificates.
	// Both are absolute paths.
	RootDir, CertDir string

	// Kubeconfig is the kubeconfig file for the API server. It is "" for a node without a cluster.
	// BootstrapKubeconfig is the kubeconfig file for the request of the first certificate.
	Kubeconfig, BootstrapKubeconfig string

	Hostname   string            // in lower case; "" for the machine's host name
	NodeIPs    []string          // empty: the addresses are detected; a single 0.0.0.0 or ::: any address of that family
	NodeLabels map[string]string // labels that the node sets on its Node; never nil

	// CredentialProviderConfig is the path for [LoadCredentialProviders], and
	// CredentialProviderDir the directory of the providers' programs. Either both are set or none.
	CredentialProviderConfig, CredentialProviderDir string

	// ExternalProvider is true if an external cloud provider initializes the node
	// before it accepts pods, and sets its addresses.
	ExternalProvider bool

	// LockFile is the absolute path of a lock file, or "" for none. The node waits until it can
	// lock the file, and holds the lock while it runs. If ExitOnLockContention is true, the node
	// exits when another program opens the file.
	LockFile             string
	ExitOnLockContention bool

	RuntimeCgroup  string             // cgroup of the runtime; "" for the cgroup of the process that serves its socket
	DeadContainers gc.ContainerPolicy // limits for dead containers

	verbosity int      // --v
	used      []string // Options.Used
	origins   origins  // of fields
}

// DeepCopy returns a copy that shares no memory with c.
func (c *Config) DeepCopy() *Config {
	out := *c
	c.KubeletConfiguration.DeepCopyInto(&out.KubeletConfiguration)
	out.NodeIPs, out.NodeLabels, out.origins = slices.Clone(c.NodeIPs), maps.Clone(c.NodeLabels), c.origins // never changed after Load
	return &out
}

// Options are the sources of a configuration. The zero value means only defaults, without files and
// flags.
type Options struct {
	// File is the main file, and Dir the directory of drop-ins; "" means none. The flags --config
	// and --config-dir replace them.
	File, Dir string
	// Flags take precedence over the files. nil means no flags.
	Flags *Flags
	// Used are fields that the caller implements itself, such as podCIDR or featureGates.NodeSwap.
	// Load does not warn that they have no effect. Feature gates in Used may be unknown to
	// Kubernetes.
	Used []string
}

// Load reads the main file and merges the drop-ins over it, in lexical order of their paths. It
// then sets defaults, applies the flags, and validates the result. Files are merged as JSON merge
// patches (RFC 7396): a list replaces a list, and null removes a value.
//
// If a step fails, the error contains all mistakes of this step, one per line. Each line contains
// the file that set the value last; see [Mistake]. The second result contains warnings about
// unsupported or unknown fields, ignored files, and flags without effect.
func Load(o Options) (*Config, []string, error) {
	f := o.Flags
	if f == nil {
		f = NewFlags()
	}
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	c, from, warnings, err := loadFiles(cmp.Or(f.ConfigFile, o.File), cmp.Or(f.ConfigDir, o.Dir), o.Used)
	if err != nil {
		return nil, nil, err
	}
	cfg := &Config{KubeletConfiguration: *c, used: o.Used, origins: from}
	if err := f.Apply(cfg); err != nil {
		return nil, nil, err
	}
	f.mark(cfg.origins)
	return cfg, append(warnings, f.withoutEffect(cfg, o.Used)...), nil
}

// loadFiles merges the files, sets defaults and validates the result.
func loadFiles(path, dir string, used []string) (*v1beta1.KubeletConfiguration, origins, []string, error) {
	merged, from, warnings, err := mergeFiles(path, dir)
	if err != nil {
		return nil, nil, nil, err
	}
	c := new(v1beta1.KubeletConfiguration)
	if _, err := decode(merged, c); err != nil {
		return nil, nil, nil, fmt.Errorf("decode configuration: %w", err)
	}
	SetDefaults(c)
	// healthzPort: 0 and readOnlyPort: 0 open no port, so users may expect the same of port: 0.
	if port, set := merged["port"]; set && fmt.Sprint(port) == "0" && *c.EnableServer {
		warnings = append(warnings, fmt.Sprintf("port: 0 is the default, %d, as in the kubelet; enableServer: false opens no port", c.Port))
	}
	err = joined(withoutOwn(mistakes(c), used), func(m Mistake) string {
		if place := from.of(m.Field); place != "" {
			return "invalid configuration: " + place + ": "
		}
		return "invalid configuration: "
	})
	return c, from, append(warnings, withoutEffect(merged, used)...), err
}

// mergeFiles merges the files into one document. from has, for each field, the file and line
// that set the field last.
func mergeFiles(path, dir string) (merged map[string]any, from origins, warnings []string, err error) {
	var files []string
	if path != "" {
		files = append(files, path)
	}
	if dir != "" {
		drops, warn, err := dropIns(dir)
		if err != nil {
			return nil, nil, nil, err
		}
		files, warnings = append(files, drops...), append(warnings, warn...)
	}
	merged, from = map[string]any{}, origins{}
	left := int64(maxBytes)
	for _, file := range files {
		b, err := readFile(file, &left)
		if err != nil {
			return nil, nil, nil, err
		}
		doc, warn, err := parseDocument(file, b)
		if err != nil {
			return nil, nil, nil, err
		}
		if file == path {
			if err := resolvePaths(doc, path); err != nil {
				return nil, nil, nil, err
			}
		}
		warnings = append(warnings, warn...)
		places, _ := marked(file, "", doc, manifestwords.Parse(b).Lines()).(map[string]any)
		from, _ = mergePatch(map[string]any(from), places).(map[string]any)
		merged, _ = mergePatch(merged, doc).(map[string]any)
	}
	return merged, from, warnings, nil
}

// ParallelPulls returns the maximum number of concurrent image pulls. It returns 0 if there is no
// limit.
func (c *Config) ParallelPulls() int {
	switch {
	case *c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	default:
		return 0
	}
}

// PodLimit returns the maximum number of pods on a machine with this number of CPUs (maxPods,
// podsPerCore).
func (c *Config) PodLimit(cpus int) int64 {
	pods := int64(c.MaxPods)
	if n := int64(c.PodsPerCore) * int64(cpus); n > 0 && n < pods {
		pods = n
	}
	return pods
}

// Verbosity returns the verbosity of the log: the maximum of --v and logging.verbosity.
func (c *Config) Verbosity() int { return max(c.verbosity, int(c.Logging.Verbosity)) }
