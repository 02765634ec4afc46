package cpumgr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options are those of the static policy. The zero value is the kubelet's
// default. Fields up to PreferUncoreCache are cpuManagerPolicyOptions; their
// comments give the kubelet's names.
type Options struct {
	// FullPCPUsOnly ("full-pcpus-only") gives whole cores, or nothing.
	FullPCPUsOnly bool
	// DistributeAcrossNUMA ("distribute-cpus-across-numa") takes the same
	// number of CPUs from each node, where one node has not enough.
	DistributeAcrossNUMA bool
	// AlignBySocket ("align-by-socket") takes a socket for as good as a node.
	AlignBySocket bool
	// DistributeAcrossCores ("distribute-cpus-across-cores") takes CPUs of
	// different cores rather than of the same.
	DistributeAcrossCores bool
	// StrictReservation ("strict-cpu-reservation") keeps the containers of the
	// shared pool off the reserved CPUs.
	StrictReservation bool
	// PreferUncoreCache ("prefer-align-cpus-by-uncorecache") tries to stay
	// within few last-level caches.
	PreferUncoreCache bool

	// PodLevel lets a pod have CPUs of its own, which its containers take
	// theirs from and share the others (the kubelet's feature gate
	// PodLevelResourceManagers, alpha). Without it, pods with resources of
	// their own share the pool.
	PodLevel bool
	// ResizeExclusive lets containers with CPUs of their own grow and shrink
	// (the feature gate InPlacePodVerticalScalingExclusiveCPUs, alpha).
	ResizeExclusive bool
}

// Gates tell which groups of options may be used: the kubelet's feature gates
// CPUManagerPolicyAlphaOptions and CPUManagerPolicyBetaOptions. By default the
// kubelet has Beta alone; see [DefaultGates].
type Gates struct{ Alpha, Beta bool }

// DefaultGates are those of the kubelet.
func DefaultGates() Gates { return Gates{Beta: true} }

// option is one that is known: where it is kept, and which gate it needs, if
// any.
type option struct {
	field       func(*Options) *bool
	alpha, beta bool
}

// knownOptions are the kubelet's, by its names, at the stages that they have
// there.
func knownOptions() map[string]option {
	return map[string]option{
		"full-pcpus-only":                  {field: func(o *Options) *bool { return &o.FullPCPUsOnly }},
		"strict-cpu-reservation":           {field: func(o *Options) *bool { return &o.StrictReservation }},
		"prefer-align-cpus-by-uncorecache": {field: func(o *Options) *bool { return &o.PreferUncoreCache }},
		"distribute-cpus-across-numa":      {field: func(o *Options) *bool { return &o.DistributeAcrossNUMA }, beta: true},
		"align-by-socket":                  {field: func(o *Options) *bool { return &o.AlignBySocket }, alpha: true},
		"distribute-cpus-across-cores":     {field: func(o *Options) *bool { return &o.DistributeAcrossCores }, alpha: true},
	}
}

// ParseOptions reads cpuManagerPolicyOptions of a KubeletConfiguration: the
// kubelet's names, with values that [strconv.ParseBool] takes. It reports
// everything that is wrong.
func ParseOptions(values map[string]string, gates Gates) (Options, error) {
	known := knownOptions()
	var o Options
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		opt, ok := known[name]
		if !ok {
			errs = append(errs, fmt.Errorf("CPU manager policy option %q is unknown; want one of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			continue
		}
		if opt.alpha && !gates.Alpha {
			errs = append(errs, fmt.Errorf("CPU manager policy option %q is alpha and needs the feature gate CPUManagerPolicyAlphaOptions", name))
			continue
		}
		if opt.beta && !gates.Beta {
			errs = append(errs, fmt.Errorf("CPU manager policy option %q is beta and needs the feature gate CPUManagerPolicyBetaOptions", name))
			continue
		}
		on, err := strconv.ParseBool(values[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("CPU manager policy option %q is %q; want true or false", name, values[name]))
			continue
		}
		*opt.field(&o) = on
	}
	return o, errors.Join(append(errs, o.validate())...)
}

// validate reports options that exclude each other. Spreading over cores
// contradicts what keeps CPUs together, and the search for caches knows nothing
// of an even distribution.
func (o Options) validate() error {
	var errs []error
	for _, pair := range []struct {
		both bool
		a, b string
	}{
		{o.FullPCPUsOnly && o.DistributeAcrossCores, "full-pcpus-only", "distribute-cpus-across-cores"},
		{o.DistributeAcrossNUMA && o.DistributeAcrossCores, "distribute-cpus-across-numa", "distribute-cpus-across-cores"},
		{o.PreferUncoreCache && o.DistributeAcrossCores, "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
		{o.PreferUncoreCache && o.DistributeAcrossNUMA, "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
	} {
		if pair.both {
			errs = append(errs, fmt.Errorf("CPU manager policy options %q and %q exclude each other", pair.a, pair.b))
		}
	}
	return errors.Join(errs...)
}

// GoesWith reports options that a topology policy, given by the kubelet's name,
// excludes: a socket is no single NUMA node.
func (o Options) GoesWith(topologyPolicy string) error {
	if o.AlignBySocket && topologyPolicy == "single-numa-node" {
		return fmt.Errorf("CPU manager policy option %q and topology manager policy %q exclude each other", "align-by-socket", topologyPolicy)
	}
	return nil
}
