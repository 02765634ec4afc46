package cgroups

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Enforcement names a part of the node whose cgroup is limited.
type Enforcement string

// The parts that can be limited, in the kubelet's words (enforceNodeAllocatable). A part whose name
// ends in -compressible gets only a CPU share.
const (
	EnforcePods               Enforcement = "pods"
	EnforceSystem             Enforcement = "system-reserved"
	EnforceKube               Enforcement = "kube-reserved"
	EnforceSystemCompressible Enforcement = "system-reserved-compressible"
	EnforceKubeCompressible   Enforcement = "kube-reserved-compressible"
	EnforceNone               Enforcement = "none"
)

// enforcements are all values that Config.Enforce may hold.
var enforcements = []Enforcement{
	EnforcePods, EnforceSystem, EnforceKube, EnforceSystemCompressible, EnforceKubeCompressible, EnforceNone,
}

// validateEnforce applies the kubelet's rules for enforceNodeAllocatable: only known words, none
// twice, and nothing beside "none". A reservation must not be enforced both with and without
// -compressible, and needs the name of a cgroup.
func (c Config) validateEnforce() error {
	var errs []error
	seen := map[Enforcement]bool{}
	for _, e := range c.Enforce {
		switch {
		case !slices.Contains(enforcements, e):
			errs = append(errs, fmt.Errorf("Config.Enforce: %q; want one of %q", e, enforcements))
		case seen[e]:
			errs = append(errs, fmt.Errorf("Config.Enforce: %q is listed twice", e))
		case e != EnforceNone && c.NoPodCgroups:
			errs = append(errs, fmt.Errorf("Config.Enforce: %q needs pod cgroups; Config.NoPodCgroups is set", e))
		}
		seen[e] = true
	}
	if seen[EnforceNone] && len(c.Enforce) > 1 {
		errs = append(errs, fmt.Errorf("Config.Enforce: %q cannot be combined with others", EnforceNone))
	}
	// Both kinds would write different values to the same cgroup.
	for _, family := range []struct {
		plain, compressible Enforcement
		field, cgroup       string
	}{
		{EnforceSystem, EnforceSystemCompressible, "SystemReservedCgroup", c.SystemReservedCgroup},
		{EnforceKube, EnforceKubeCompressible, "KubeReservedCgroup", c.KubeReservedCgroup},
	} {
		if seen[family.plain] && seen[family.compressible] {
			errs = append(errs, fmt.Errorf("Config.Enforce: %q cannot be combined with %q", family.plain, family.compressible))
		}
		if (seen[family.plain] || seen[family.compressible]) && family.cgroup == "" {
			errs = append(errs, fmt.Errorf("Config.Enforce requires Config.%s", family.field))
		}
	}
	return errors.Join(errs...)
}

// reservedCgroup is a cgroup of other programs that is limited to its reservation.
type reservedCgroup struct {
	key       Enforcement
	path      string // as a path of cgroupfs
	resources Resources
	err       error // why the cgroup cannot be limited; nil if it can
}

// reservedCgroups returns the cgroups that Config.Enforce names. An invalid entry has its error
// in err, so that the others are limited nevertheless.
func (c Config) reservedCgroups() []reservedCgroup {
	var out []reservedCgroup
	add := func(key Enforcement, path string, list v1.ResourceList, compressible bool) {
		if !slices.Contains(c.Enforce, key) {
			return
		}
		r := reservedCgroup{key: key, path: path, resources: OfList(list)}
		// Nil differs from empty: enforcing a reservation that is not configured is
		// a fault.
		if list == nil {
			r.err = fmt.Errorf("%s: no reservation is configured", key)
		}
		switch {
		// A limit of memory or processes could end a system service; a CPU share
		// only slows it down.
		case compressible:
			r.resources = Resources{CPUShares: r.resources.CPUShares}
		// The reservation is protected up to its own limit (KEP-2570).
		case c.ReserveMemory && r.resources.Memory != nil:
			r.resources.Unified = map[string]string{memoryMin: strconv.FormatInt(*r.resources.Memory, 10)}
		}
		out = append(out, r)
	}
	add(EnforceSystem, c.SystemReservedCgroup, c.Node.SystemReserved, false)
	add(EnforceSystemCompressible, c.SystemReservedCgroup, c.Node.SystemReserved, true)
	add(EnforceKube, c.KubeReservedCgroup, c.Node.KubeReserved, false)
	add(EnforceKubeCompressible, c.KubeReservedCgroup, c.Node.KubeReserved, true)
	return out
}

// nodeResources returns the values for the cgroup of all pods, with a CPU share and no CPU quota.
// Without "pods" in Config.Enforce the limits are the node's capacity, as in the kubelet: this
// removes a lower limit that was set earlier.
func (c Config) nodeResources() Resources {
	list := c.Node.Capacity
	if len(list) == 0 {
		return Resources{CPUSet: c.CPUs}
	}
	if slices.Contains(c.Enforce, EnforcePods) {
		list = c.Node.ForPods()
	}
	out := OfList(list)
	out.CPUSet = c.CPUs
	return out
}

// parsePercent reads a whole percentage: 0% to 100%. The percent sign is
// required, and fractions are errors.
func parsePercent(s string) (int64, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n > 100 {
		return 0, fmt.Errorf("%q: want 0%% to 100%%", s)
	}
	return int64(n), nil
}

// reservePercent returns the percentage of the memory requested by pods of higher QoS classes
// that pods of lower classes cannot use; -1 if nothing is reserved. Memory is the only resource
// that the kubelet supports.
func (c Config) reservePercent() (int64, error) {
	percent := int64(-1)
	var errs []error
	for name, s := range c.QOSReserved {
		n, err := parsePercent(s)
		switch {
		case name != v1.ResourceMemory:
			errs = append(errs, fmt.Errorf("Config.QOSReserved: %q; want only memory", name))
		case err != nil:
			errs = append(errs, fmt.Errorf("Config.QOSReserved[%s]: %w", name, err))
		default:
			percent = n
		}
	}
	return percent, errors.Join(errs...)
}
