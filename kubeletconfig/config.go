package kubeletconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/gc"
)

// Config is the configuration of a node: files and flags together, with defaults,
// validated. Pointers for which the kubelet has a default are not nil. It belongs
// to the caller; nothing here keeps it.
//
// The methods beside the fields put one concern each into the words of the block
// that it is for. They expect a Config of [Load], or one whose KubeletConfiguration
// has been through [SetDefaults] and [Validate].
type Config struct {
	v1beta1.KubeletConfiguration

	// RootDir and CertDir, both absolute, hold the node's state and certificates.
	RootDir, CertDir string

	// Kubeconfig says how to reach the API server; without one the node stands
	// alone. BootstrapKubeconfig is what the first certificate is asked for with.
	Kubeconfig, BootstrapKubeconfig string

	Hostname   string            // in lower case; "" for that of the machine
	NodeIPs    []string          // none: detect; a lone 0.0.0.0 or ::, any of that family
	NodeLabels map[string]string // that a node may give itself; never nil

	// CredentialProviderConfig is a file for [LoadCredentialProviders], whose
	// programs are in CredentialProviderDir; both or neither.
	CredentialProviderConfig, CredentialProviderDir string

	// ExternalProvider says that a cloud provider outside of the node has to see
	// it before it takes pods, and says its addresses.
	ExternalProvider bool

	// LockFile, absolute or "", is locked while the node is there, and waited for
	// before. ExitOnLockContention ends the node when somebody else opens it.
	LockFile             string
	ExitOnLockContention bool

	RuntimeCgroup  string             // of the runtime; "" for that of the process behind its socket
	DeadContainers gc.ContainerPolicy // how many stay

	verbosity int      // --v
	used      []string // of Options
}

// DeepCopy returns a copy that shares nothing with c.
func (c *Config) DeepCopy() *Config {
	out := *c
	c.KubeletConfiguration.DeepCopyInto(&out.KubeletConfiguration)
	out.NodeIPs, out.NodeLabels = slices.Clone(c.NodeIPs), maps.Clone(c.NodeLabels)
	return &out
}

// Options defines where a configuration comes from. The zero value is that of a node
// without files or flags: defaults alone.
type Options struct {
	// File is the main file and Dir the directory of drop-ins, where Flags do not
	// name others; "" for none.
	File, Dir string
	// Flags lie over the files; those of nobody.
	Flags *Flags
	// Used are fields to which the caller gives an effect of its own, such as
	// podCIDR or featureGates.NodeSwap: no warning says that they have none, and
	// a gate may be one that Kubernetes does not know.
	Used []string
}

// Load reads the main file, merges the drop-ins over it in lexical order of their
// paths (JSON merge patch, RFC 7396: a list replaces a list, null takes back), fills
// in defaults, lays the flags over the result, and validates it.
//
// All mistakes of one step are in one error, a line each, with the file that set the
// value last; see [Mistake]. The warnings, a line each too, name what is set and
// has no effect: fields that nothing supports or knows, files that were not read,
// flags that have no meaning beside others.
func Load(o Options) (*Config, []string, error) {
	f := o.Flags
	if f == nil {
		f = NewFlags()
	}
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	c, warnings, err := loadFiles(cmp.Or(f.ConfigFile, o.File), cmp.Or(f.ConfigDir, o.Dir), o.Used)
	if err != nil {
		return nil, nil, err
	}
	cfg := &Config{KubeletConfiguration: *c, used: o.Used}
	if err := f.Apply(cfg); err != nil {
		return nil, nil, err
	}
	return cfg, append(warnings, f.withoutEffect(cfg, o.Used)...), nil
}

// loadFiles loads what files say, with defaults and validated.
func loadFiles(path, dir string, used []string) (*v1beta1.KubeletConfiguration, []string, error) {
	merged, origin, warnings, err := mergeFiles(path, dir)
	if err != nil {
		return nil, nil, err
	}
	c := new(v1beta1.KubeletConfiguration)
	if _, err := decode(merged, c); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	SetDefaults(c)
	err = joined(withoutOwn(mistakes(c), used), func(m Mistake) string {
		if file := origin[m.top()]; file != "" {
			return "invalid configuration: " + file + ": "
		}
		return "invalid configuration: "
	})
	return c, append(warnings, withoutEffect(merged, used)...), err
}

// mergeFiles is the document that the files come to. Origin has for each field the
// file that set it last.
func mergeFiles(path, dir string) (merged map[string]any, origin map[string]string, warnings []string, err error) {
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
	merged, origin = map[string]any{}, map[string]string{}
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
		for field := range doc {
			origin[field] = file
		}
		merged, _ = mergePatch(merged, doc).(map[string]any)
	}
	return merged, origin, warnings, nil
}

// ParallelPulls is how many images are pulled at a time; 0 means any number.
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

// PodLimit is how many pods a machine with that many CPUs takes (maxPods,
// podsPerCore).
func (c *Config) PodLimit(cpus int) int64 {
	pods := int64(c.MaxPods)
	if n := int64(c.PodsPerCore) * int64(cpus); n > 0 && n < pods {
		pods = n
	}
	return pods
}

// Verbosity is that of the log: --v or logging.verbosity, whichever is more.
func (c *Config) Verbosity() int { return max(c.verbosity, int(c.Logging.Verbosity)) }
