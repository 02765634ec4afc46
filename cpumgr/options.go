package cpumgr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options configures the static policy. The zero value has the kubelet's defaults. Fields up to
// PreferUncoreCache are cpuManagerPolicyOptions, with the kubelet's names in their comments.
type Options struct {
	// FullPCPUsOnly ("full-pcpus-only") allocates only whole cores.
	FullPCPUsOnly bool
	// DistributeAcrossNUMA ("distribute-cpus-across-numa") takes the same number of CPUs from
	// each node, if one node does not have enough.
	DistributeAcrossNUMA bool
	// AlignBySocket ("align-by-socket") prefers CPUs of one socket, even from several nodes.
	AlignBySocket bool
	// DistributeAcrossCores ("distribute-cpus-across-cores") takes CPUs from different cores.
	DistributeAcrossCores bool
	// StrictReservation ("strict-cpu-reservation") excludes the reserved CPUs from the shared
	// pool.
	StrictReservation bool
	// PreferUncoreCache ("prefer-align-cpus-by-uncorecache") tries to use few
	// last-level caches.
	PreferUncoreCache bool

	// PodLevel gives exclusive CPUs to pods with pod-level resources: some containers get
	// exclusive CPUs from the pod's, and the others share the rest (the kubelet's feature gate
	// PodLevelResourceManagers, alpha). Without it, such pods use the shared pool.
	PodLevel bool
	// ResizeExclusive allows containers with exclusive CPUs to be resized (the
	// feature gate InPlacePodVerticalScalingExclusiveCPUs, alpha).
	ResizeExclusive bool
}

// Gates says which groups of options may be used: the kubelet's feature gates
// CPUManagerPolicyAlphaOptions and CPUManagerPolicyBetaOptions.
type Gates struct{ Alpha, Beta bool }

// DefaultGates returns the kubelet's defaults: only Beta.
func DefaultGates() Gates { return Gates{Beta: true} }

// option describes a known option: its field, and the gate that it needs, if any.
type option struct {
	field       func(*Options) *bool
	alpha, beta bool
}

// knownOptions returns the kubelet's options by name, with their stages.
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

// ParseOptions parses cpuManagerPolicyOptions of a KubeletConfiguration: the kubelet's names,
// with values that [strconv.ParseBool] accepts. The error has all mistakes.
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

// validate returns an error for options that exclude each other: distribute-cpus-across-cores and
// the options that keep CPUs together, and prefer-align-cpus-by-uncorecache and the options that
// distribute CPUs evenly.
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

// Conflicts returns an error if an option contradicts a topology policy, given by the kubelet's
// name: the CPUs of a socket may be in several NUMA nodes, which single-numa-node does not allow.
func (o Options) Conflicts(topologyPolicy string) error {
	if o.AlignBySocket && topologyPolicy == "single-numa-node" {
		return fmt.Errorf("CPU manager policy option %q and topology manager policy %q exclude each other", "align-by-socket", topologyPolicy)
	}
	return nil
}
