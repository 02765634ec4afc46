package kubeletconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/gc"
)

// Config is the validated configuration of a node from files, flags and defaults.
// Pointers with a default in the kubelet are not nil. The caller owns it.
//
// Each method converts one concern for one block. The methods expect a Config of
// [Load], or one whose KubeletConfiguration has been through [SetDefaults] and
// [Validate].
type Config struct {
	v1beta1.KubeletConfiguration

	// RootDir and CertDir, both absolute, are the directories of the node's state
	// and certificates.
	RootDir, CertDir string

	// Kubeconfig is the file for the API server; "" for a node without a cluster.
	// BootstrapKubeconfig is used to request the first certificate.
	Kubeconfig, BootstrapKubeconfig string

	Hostname   string            // in lower case; "" for that of the machine
	NodeIPs    []string          // none: detect; a single 0.0.0.0 or ::, any address of that family
	NodeLabels map[string]string // labels that a node may set itself; never nil

	// CredentialProviderConfig is a file for [LoadCredentialProviders], and
	// CredentialProviderDir the directory of its programs; both or neither.
	CredentialProviderConfig, CredentialProviderDir string

	// ExternalProvider says that an external cloud provider initializes the node
	// before it accepts pods, and sets its addresses.
	ExternalProvider bool

	// LockFile, absolute or "", is locked while the node runs, and waited for
	// before. ExitOnLockContention ends the node when another program opens it.
	LockFile             string
	ExitOnLockContention bool

	RuntimeCgroup  string             // of the runtime; "" for the cgroup of the process behind its socket
	DeadContainers gc.ContainerPolicy // limits of dead containers

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

// Options defines the sources of a configuration. The zero value has neither files
// nor flags: it gives the defaults.
type Options struct {
	// File is the main file and Dir the directory of drop-ins, unless Flags names
	// others; "" for none.
	File, Dir string
	// Flags override the files; nil: none.
	Flags *Flags
	// Used are fields that the caller implements itself, such as podCIDR or
	// featureGates.NodeSwap: they cause no warning about a missing effect, and a
	// gate need not be known to Kubernetes.
	Used []string
}

// Load reads the main file, merges the drop-ins over it in lexical order of their
// paths (JSON merge patch, RFC 7396: a list replaces a list, null removes a value),
// sets defaults, applies the flags, and validates the result.
//
// The error has all faults of one step, a line each, with the file that set the
// value last; see [Mistake]. The warnings, a line each, name values without an
// effect: unsupported or unknown fields, files that were not read, and flags that
// are meaningless beside others.
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

// loadFiles loads the files with defaults, and validates them.
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

// mergeFiles returns the merged document of the files. origin has for each field
// the file that set it last.
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

// ParallelPulls returns how many images may be pulled at a time; 0 means any
// number.
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

// PodLimit returns the maximum number of pods of a machine with that many CPUs
// (maxPods, podsPerCore).
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
