package kubeletconfig

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// A setting is a flag that overrides a field of KubeletConfiguration. Parsing stores the flag's
// value in the configuration over. Afterwards, when it is known which flags were given, lay copies
// the value to the configuration c.
type setting struct {
	name string
	bind func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration)
	lay  func(c, over *v1beta1.KubeletConfiguration)
}

// settings returns the flags that override fields, except fieldFlags.
func settings() []setting {
	type conf = v1beta1.KubeletConfiguration
	return []setting{
		truth("register-node", true, "create the Node object, in a cluster", func(c *conf) **bool { return &c.RegisterNode }),
		word("pod-manifest-path", "the `directory` (or file) of pod manifests", func(c *conf) *string { return &c.StaticPodPath }),
		word("manifest-url", "a `URL` of pod manifests", func(c *conf) *string { return &c.StaticPodURL }),
		word("container-runtime-endpoint", "the runtime's `socket`; by default the first well-known socket that answers", func(c *conf) *string { return &c.ContainerRuntimeEndpoint }),
		word("image-service-endpoint", "the image service's `socket`, if it differs from the runtime's", func(c *conf) *string { return &c.ImageServiceEndpoint }),
		pairs("eviction-hard", "<", "thresholds below which pods are evicted at once: `signal<amount`, comma-separated, such as memory.available<1Gi", func(c *conf) *map[string]string { return &c.EvictionHard }),
		pairs("eviction-soft", "<", "thresholds below which pods are evicted after a grace period: `signal<amount`, comma-separated", func(c *conf) *map[string]string { return &c.EvictionSoft }),
		pairs("eviction-soft-grace-period", "=", "grace periods of the soft thresholds: `signal=duration`, comma-separated", func(c *conf) *map[string]string { return &c.EvictionSoftGracePeriod }),
		pairs("eviction-minimum-reclaim", "=", "amounts to reclaim beyond a threshold: `signal=amount`, comma-separated", func(c *conf) *map[string]string { return &c.EvictionMinimumReclaim }),
		period("eviction-pressure-transition-period", "the `time` for which a pressure condition stays true after its cause has ended; 5m", func(c *conf) *metav1.Duration { return &c.EvictionPressureTransitionPeriod }),
		count("eviction-max-pod-grace-period", "the longest grace period of a pod that is evicted at a soft threshold, in `seconds`", func(c *conf) *int32 { return &c.EvictionMaxPodGracePeriod }),
		truth("merge-default-eviction-settings", false, "add the default thresholds to the given ones", func(c *conf) **bool { return &c.MergeDefaultEvictionSettings }),
		truth("local-storage-capacity-isolation", true, "evict pods that exceed their limits of local storage", func(c *conf) **bool { return &c.LocalStorageCapacityIsolation }),
	}
}

func word(name, usage string, at func(*v1beta1.KubeletConfiguration) *string) setting {
	return setting{name,
		func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration) { fs.StringVar(at(over), name, "", usage) },
		func(c, over *v1beta1.KubeletConfiguration) { *at(c) = *at(over) },
	}
}

func truth(name string, def bool, usage string, at func(*v1beta1.KubeletConfiguration) **bool) setting {
	return setting{name,
		func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration) {
			*at(over) = new(bool)
			fs.BoolVar(*at(over), name, def, usage)
		},
		func(c, over *v1beta1.KubeletConfiguration) { *at(c) = new(**at(over)) },
	}
}

func period(name, usage string, at func(*v1beta1.KubeletConfiguration) *metav1.Duration) setting {
	return setting{name,
		func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration) {
			fs.DurationVar(&at(over).Duration, name, 0, usage)
		},
		func(c, over *v1beta1.KubeletConfiguration) { *at(c) = *at(over) },
	}
}

func count(name, usage string, at func(*v1beta1.KubeletConfiguration) *int32) setting {
	return setting{name,
		func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration) {
			fs.Var((*countValue)(at(over)), name, usage)
		},
		func(c, over *v1beta1.KubeletConfiguration) { *at(c) = *at(over) },
	}
}

func pairs(name, between, usage string, at func(*v1beta1.KubeletConfiguration) *map[string]string) setting {
	return setting{name,
		func(fs *flag.FlagSet, over *v1beta1.KubeletConfiguration) {
			fs.Var(&pairsValue{between, at(over)}, name, usage)
		},
		func(c, over *v1beta1.KubeletConfiguration) { *at(c) = maps.Clone(*at(over)) },
	}
}

// countValue is the flag.Value of a 32-bit integer.
type countValue int32

func (n *countValue) String() string { return strconv.Itoa(int(*n)) }

// Get implements flag.Getter.
func (n *countValue) Get() any { return int(*n) }

func (n *countValue) Set(s string) error {
	v, err := strconv.ParseInt(s, 0, 32)
	if err == nil {
		*n = countValue(v)
	}
	return err
}

// pairsValue is the flag.Value of a list of pairs of name and value, separated by commas.
type pairsValue struct {
	between string
	pairs   *map[string]string
}

// String returns the pairs, sorted. Package flag also calls it on a zero value.
func (p *pairsValue) String() string {
	if p.pairs == nil {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*p.pairs)) {
		out = append(out, name+p.between+(*p.pairs)[name])
	}
	return strings.Join(out, ",")
}

// Set adds the pairs in s to the map. An empty s makes a nil map empty.
func (p *pairsValue) Set(s string) error {
	if *p.pairs == nil {
		*p.pairs = map[string]string{}
	}
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, p.between)
		if !ok || name == "" {
			return fmt.Errorf("name%svalue, separated by commas", p.between)
		}
		(*p.pairs)[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return nil
}
