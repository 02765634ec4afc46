package kubeletconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// Values of cpuManagerPolicy.
const (
	cpuNone   = "none"
	cpuStatic = "static"
)

// Feature gates of the CPU, memory and topology managers.
const (
	gateCPUAlpha = "CPUManagerPolicyAlphaOptions"
	gateCPUBeta  = "CPUManagerPolicyBetaOptions"
	gatePodLevel = "PodLevelResourceManagers"
)

// PlacesNothing reports whether the policies of the CPU, memory and topology managers are all none.
func (c *Config) PlacesNothing() bool {
	return c.CPUManagerPolicy == cpuNone && c.MemoryManagerPolicy == memmgr.NoneName && c.TopologyManagerPolicy == topology.NameNone
}

// PodLevelResources reports whether the CPU, memory and topology managers support pod-level
// resources (feature gate PodLevelResourceManagers, off by default).
func (c *Config) PodLevelResources() bool { return c.FeatureGates[gatePodLevel] }

// gatePodCertificates is the feature gate for podCertificate in projected volumes (KEP-4317).
const gatePodCertificates = "PodCertificateRequest"

// PodCertificates reports whether pods may get certificates from signers of the API server (feature
// gate PodCertificateRequest, off by default here).
func (c *Config) PodCertificates() bool { return c.FeatureGates[gatePodCertificates] }

// CPUOptions returns cpuManagerPolicyOptions.
func (c *Config) CPUOptions() cpumgr.Options { return cpuOptions(&c.KubeletConfiguration, quiet) }

// TopologyOptions returns topologyManagerPolicyOptions. As in the kubelet, the options have
// no effect with policy none.
func (c *Config) TopologyOptions() topology.Options {
	return topologyOptions(&c.KubeletConfiguration, quiet)
}

// CPUReservation returns the CPUs that are reserved for the system (reservedSystemCPUs). If that
// field is empty, it returns the sum of CPU in systemReserved and kubeReserved.
func (c *Config) CPUReservation() cpumgr.Reservation {
	if cpus, _ := numa.ParseCPUs(c.ReservedSystemCPUs); !cpus.Empty() {
		return cpumgr.Reservation{CPUs: cpus}
	}
	cpu := c.Reserved(v1.ResourceCPU)
	return cpumgr.Reservation{MilliCPU: cpu.MilliValue()}
}

// MemoryReservation returns the reserved memory of each NUMA node of the machine m. capacity is the
// machine's memory in bytes. The sum of reservedMemory must equal the sum of the memory in
// systemReserved, kubeReserved and evictionHard. Without reservedMemory, the latter sum is spread
// over the NUMA nodes.
func (c *Config) MemoryReservation(m numa.Machine, capacity int64) (memmgr.Reserved, error) {
	keep, err := c.memoryKeptFree(capacity)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	q := c.Reserved(v1.ResourceMemory)
	total := map[memmgr.Resource]uint64{memmgr.Memory: uint64(q.Value() + keep)}
	if len(c.ReservedMemory) == 0 {
		r, err := memmgr.Spread(m, total)
		if err != nil {
			return nil, fmt.Errorf("invalid configuration: systemReserved, kubeReserved and evictionHard: %w", err)
		}
		return r, nil
	}
	r := reservedMemory(&c.KubeletConfiguration, quiet)
	if err := memmgr.ValidateReserved(m, r, total); err != nil {
		return nil, fmt.Errorf("invalid configuration: reservedMemory: want the sum of systemReserved, kubeReserved and evictionHard: %w", err)
	}
	return r, nil
}

// quiet is a reporter that ignores mistakes, for values that are already validated.
func quiet(string, any, string) {}

// validatePlacement reports mistakes in the settings of the CPU, memory and topology managers that
// can be found without knowing the machine.
func validatePlacement(c *v1beta1.KubeletConfiguration, bad reporter) {
	oneOf(bad, "cpuManagerPolicy", c.CPUManagerPolicy, cpuNone, cpuStatic)
	oneOf(bad, "memoryManagerPolicy", c.MemoryManagerPolicy, memmgr.NoneName, memmgr.StaticName)
	oneOf(bad, "topologyManagerPolicy", c.TopologyManagerPolicy,
		topology.NameNone, topology.NameBestEffort, topology.NameRestricted, topology.NameSingleNUMANode)
	oneOf(bad, "topologyManagerScope", c.TopologyManagerScope, string(topology.ContainerScope), string(topology.PodScope))
	if d := c.CPUManagerReconcilePeriod.Duration; d < 0 {
		bad("cpuManagerReconcilePeriod", d.String(), "a duration of 0 or more")
	}
	_ = cpuOptions(c, bad)
	_ = topologyOptions(c, bad)
	if cpus, err := numa.ParseCPUs(c.ReservedSystemCPUs); err != nil {
		bad("reservedSystemCPUs", c.ReservedSystemCPUs, "a list of CPUs such as 0-1,8")
	} else if !cpus.Empty() && (c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "") {
		bad("reservedSystemCPUs", c.ReservedSystemCPUs, "none if systemReservedCgroup or kubeReservedCgroup is set")
	}
	_ = reservedMemory(c, bad)
}

func cpuOptions(c *v1beta1.KubeletConfiguration, bad reporter) cpumgr.Options {
	gates := cpumgr.DefaultGates()
	for gate, on := range map[string]*bool{gateCPUAlpha: &gates.Alpha, gateCPUBeta: &gates.Beta} {
		if v, ok := c.FeatureGates[gate]; ok {
			*on = v
		}
	}
	each := true
	for _, name := range slices.Sorted(maps.Keys(c.CPUManagerPolicyOptions)) {
		value := c.CPUManagerPolicyOptions[name]
		if _, err := cpumgr.ParseOptions(map[string]string{name: value}, gates); err != nil {
			bad("cpuManagerPolicyOptions."+name, value, "true or false for a known option: "+err.Error())
			each = false
		}
	}
	o, err := cpumgr.ParseOptions(c.CPUManagerPolicyOptions, gates)
	switch {
	case err == nil:
		err = o.Conflicts(c.TopologyManagerPolicy)
	case !each:
		err = nil // reported above
	}
	if err == nil && c.CPUManagerPolicy == cpuNone && o != (cpumgr.Options{}) {
		err = errors.New("policy none has no options")
	}
	if err != nil {
		bad("cpuManagerPolicyOptions", c.CPUManagerPolicyOptions, "compatible options: "+err.Error())
	}
	return o
}

func topologyOptions(c *v1beta1.KubeletConfiguration, bad reporter) topology.Options {
	if c.TopologyManagerPolicy == topology.NameNone {
		return topology.Options{}
	}
	for _, name := range slices.Sorted(maps.Keys(c.TopologyManagerPolicyOptions)) {
		value := c.TopologyManagerPolicyOptions[name]
		if _, err := topology.ParseOptions(map[string]string{name: value}); err != nil {
			bad("topologyManagerPolicyOptions."+name, value, "a value of a known option: "+err.Error())
		}
	}
	o, _ := topology.ParseOptions(c.TopologyManagerPolicyOptions) // reported above
	return o
}

func reservedMemory(c *v1beta1.KubeletConfiguration, bad reporter) memmgr.Reserved {
	r := memmgr.Reserved{}
	for i, entry := range c.ReservedMemory {
		field := fmt.Sprintf("reservedMemory[%d]", i)
		if entry.NumaNode < 0 || entry.NumaNode >= numa.MaxNodes {
			bad(field+".numaNode", entry.NumaNode, fmt.Sprintf("0 to %d", numa.MaxNodes-1))
			continue
		}
		if len(entry.Limits) == 0 {
			bad(field+".limits", entry.Limits, "memory or hugepages-<size>")
		}
		for _, name := range slices.Sorted(maps.Keys(entry.Limits)) {
			q := entry.Limits[name]
			if q.Sign() <= 0 {
				bad(field+".limits."+string(name), q.String(), "a quantity above 0")
			} else if err := r.Add(int(entry.NumaNode), memmgr.Resource(name), uint64(q.Value())); err != nil {
				bad(field+".limits."+string(name), q.String(), "memory or hugepages-<size>, once for a node: "+err.Error())
			}
		}
	}
	return r
}
