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
// Each method returns the configuration of one block or one value. The methods expect a Config of
// [Load], or one whose KubeletConfiguration was passed to [SetDefaults] and [Validate].
type Config struct {
	v1beta1.KubeletConfiguration

	// RootDir is the directory of the node's state, and CertDir that of its certificates. Both
	// are absolute.
	RootDir, CertDir string

	// Kubeconfig is the kubeconfig file for the API server. It is "" if the node has no cluster.
	// BootstrapKubeconfig is the kubeconfig file with which the first certificate is requested.
	Kubeconfig, BootstrapKubeconfig string

	Hostname   string            // in lower case; "" for the machine's host name
	NodeIPs    []string          // if empty, the addresses are detected; a single 0.0.0.0 or :: means any address of that family
	NodeLabels map[string]string // labels that a node may set on itself; never nil

	// CredentialProviderConfig is the path for [LoadCredentialProviders], and
	// CredentialProviderDir the directory of the providers' programs. Both are set, or neither.
	CredentialProviderConfig, CredentialProviderDir string

	// ExternalProvider says that an external cloud provider initializes the node
	// before it accepts pods, and sets its addresses.
	ExternalProvider bool

	// LockFile is the absolute path of a lock file. The node waits for a lock on the file, and
	// holds the lock while it runs. If LockFile is "", there is no lock. If ExitOnLockContention
	// is true, the node exits when another program opens the file.
	LockFile             string
	ExitOnLockContention bool

	RuntimeCgroup  string             // cgroup of the runtime; "" for that of the process that serves its socket
	DeadContainers gc.ContainerPolicy // limits for dead containers

	verbosity int      // --v
	used      []string // Options.Used
	origins   origins  // of fields
}

// DeepCopy returns a copy that shares no memory with c.
func (c *Config) DeepCopy() *Config {
	out := *c
	c.KubeletConfiguration.DeepCopyInto(&out.KubeletConfiguration)
	out.NodeIPs, out.NodeLabels, out.origins = slices.Clone(c.NodeIPs), maps.Clone(c.NodeLabels), c.origins // which does not change
	return &out
}

// Options names the sources of a configuration. The zero value means that there are neither files
// nor flags, only defaults.
type Options struct {
	// File is the main file and Dir the directory of drop-ins. If one is "", there is no such
	// file or directory. Flags may replace both.
	File, Dir string
	// Flags take precedence over the files. If Flags is nil, there are no flags.
	Flags *Flags
	// Used are fields that the caller implements itself, such as podCIDR or
	// featureGates.NodeSwap. They cause no warning that they have no effect, and gates among them
	// may be unknown to Kubernetes.
	Used []string
}

// Load reads the main file and merges the drop-ins over it, in lexical order of their paths. It
// then sets defaults, applies the flags, and validates the result. Files are merged as JSON merge
// patches (RFC 7396): a list replaces a list, and null removes a value.
//
// If a step fails, the error has all mistakes of this step, one per line. Each line names the
// file that set the value last; see [Mistake]. The warnings, one per line, are about unsupported
// or unknown fields, files that were not read, and flags that other flags make meaningless.
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

// loadFiles loads the files with defaults, and validates them.
func loadFiles(path, dir string, used []string) (*v1beta1.KubeletConfiguration, origins, []string, error) {
	merged, from, warnings, err := mergeFiles(path, dir)
	if err != nil {
		return nil, nil, nil, err
	}
	c := new(v1beta1.KubeletConfiguration)
	if _, err := decode(merged, c); err != nil {
		return nil, nil, nil, fmt.Errorf("configuration: %w", err)
	}
	SetDefaults(c)
	// A 0 for healthzPort or readOnlyPort opens no port, so people expect the same here.
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

// PodLimit returns the maximum number of pods on a machine with that number of CPUs (maxPods,
// podsPerCore).
func (c *Config) PodLimit(cpus int) int64 {
	pods := int64(c.MaxPods)
	if n := int64(c.PodsPerCore) * int64(cpus); n > 0 && n < pods {
		pods = n
	}
	return pods
}

// Verbosity returns the verbosity of the log: the larger of --v and
// logging.verbosity.
func (c *Config) Verbosity() int { return max(c.verbosity, int(c.Logging.Verbosity)) }
