package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/numa/sysfs"
	"github.com/nodewright/nodewright/topology"
)

// placementGates are the feature gates that change how containers are placed.
// Others have no effect.
var placementGates = []string{"CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "PodLevelResourceManagers"}

// setPlacementDefaults fills in the kubelet's defaults.
func setPlacementDefaults(c *kubeletconfig.KubeletConfiguration) {
	for _, f := range []struct {
		field *string
		def   string
	}{
		{&c.CPUManagerPolicy, fit.CPUNone}, {&c.MemoryManagerPolicy, memmgr.NoneName},
		{&c.TopologyManagerPolicy, topology.NameNone}, {&c.TopologyManagerScope, string(topology.ContainerScope)},
	} {
		if *f.field == "" {
			*f.field = f.def
		}
	}
}

// validatePlacement tells bad of each mistake that shows without the machine.
func validatePlacement(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	for _, f := range []struct {
		field, value string
		allowed      []string
	}{
		{"cpuManagerPolicy", c.CPUManagerPolicy, []string{fit.CPUNone, fit.CPUStatic}},
		{"memoryManagerPolicy", c.MemoryManagerPolicy, []string{memmgr.NoneName, memmgr.StaticName}},
		{"topologyManagerPolicy", c.TopologyManagerPolicy, []string{
			topology.NameNone, topology.NameBestEffort, topology.NameRestricted, topology.NameSingleNUMANode,
		}},
		{"topologyManagerScope", c.TopologyManagerScope, []string{string(topology.ContainerScope), string(topology.PodScope)}},
	} {
		if !slices.Contains(f.allowed, f.value) {
			bad(f.field, f.value, "one of "+strings.Join(f.allowed, ", "))
		}
	}
	if d := c.CPUManagerReconcilePeriod.Duration; d < 0 {
		bad("cpuManagerReconcilePeriod", d.String(), "a duration of 0 or more")
	}
	cpuOptions(c, bad)
	topologyOptions(c, bad)
	if cpus, err := numa.ParseCPUs(c.ReservedSystemCPUs); err != nil {
		bad("reservedSystemCPUs", c.ReservedSystemCPUs, "a list of CPUs such as 0-1,8")
	} else if !cpus.Empty() && (c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "") {
		bad("reservedSystemCPUs", c.ReservedSystemCPUs, "none beside systemReservedCgroup or kubeReservedCgroup")
	}
	_ = reservedMemory(c, bad)
}

// cpuOptions reads cpuManagerPolicyOptions.
func cpuOptions(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) cpumgr.Options {
	gates := cpumgr.DefaultGates()
	for gate, on := range map[string]*bool{"CPUManagerPolicyAlphaOptions": &gates.Alpha, "CPUManagerPolicyBetaOptions": &gates.Beta} {
		if v, ok := c.FeatureGates[gate]; ok {
			*on = v
		}
	}
	one := true
	for _, name := range slices.Sorted(maps.Keys(c.CPUManagerPolicyOptions)) {
		value := c.CPUManagerPolicyOptions[name]
		if _, err := cpumgr.ParseOptions(map[string]string{name: value}, gates); err != nil {
			bad("cpuManagerPolicyOptions."+name, value, "true or false for a known option: "+err.Error())
			one = false
		}
	}
	o, err := cpumgr.ParseOptions(c.CPUManagerPolicyOptions, gates)
	switch {
	case err == nil:
		err = o.GoesWith(c.TopologyManagerPolicy)
	case !one:
		err = nil // it was told
	}
	if err == nil && c.CPUManagerPolicy == fit.CPUNone && o != (cpumgr.Options{}) {
		err = errors.New("policy none has no options")
	}
	if err != nil {
		bad("cpuManagerPolicyOptions", c.CPUManagerPolicyOptions, "options that go together: "+err.Error())
	}
	return o
}

// topologyOptions reads topologyManagerPolicyOptions. As for the kubelet, they
// do not matter to policy none.
func topologyOptions(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) topology.Options {
	if c.TopologyManagerPolicy == topology.NameNone {
		return topology.Options{}
	}
	for _, name := range slices.Sorted(maps.Keys(c.TopologyManagerPolicyOptions)) {
		value := c.TopologyManagerPolicyOptions[name]
		if _, err := topology.ParseOptions(map[string]string{name: value}); err != nil {
			bad("topologyManagerPolicyOptions."+name, value, "a value of a known option: "+err.Error())
		}
	}
	o, _ := topology.ParseOptions(c.TopologyManagerPolicyOptions) // told above
	return o
}

// reservedMemory reads the list of that name.
func reservedMemory(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) memmgr.Reserved {
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

// reservedLists have reservedSystemCPUs count instead of what is reserved of CPUs
// by number, as the kubelet has it.
func reservedLists(c *kubeletconfig.KubeletConfiguration) (system, kube map[string]string) {
	system, kube = maps.Clone(c.SystemReserved), maps.Clone(c.KubeReserved)
	if cpus, err := numa.ParseCPUs(c.ReservedSystemCPUs); err == nil && !cpus.Empty() {
		if system == nil {
			system = map[string]string{}
		}
		system[string(v1.ResourceCPU)] = strconv.Itoa(cpus.Len())
		delete(kube, string(v1.ResourceCPU))
	}
	return system, kube
}

// reserved is how much of a resource is set aside for the system.
func reserved(c *kubeletconfig.KubeletConfiguration, name v1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	system, kube := reservedLists(c)
	for _, list := range []map[string]string{system, kube} {
		if s, ok := list[string(name)]; ok {
			sum.Add(resource.MustParse(s)) // checked with the configuration
		}
	}
	return sum
}

// hardEviction is the memory that eviction keeps free, of which the kubelet
// wants the reserved memory to tell too (evictionHard, memory.available; 100Mi).
func hardEviction(c *kubeletconfig.KubeletConfiguration, capacity int64) (int64, error) {
	const signal = "memory.available"
	s, ok := keptFree(c)[signal]
	if !ok && c.EvictionHard == nil {
		s, ok = "100Mi", true
	}
	if !ok {
		return 0, nil
	}
	if percent, is := strings.CutSuffix(s, "%"); is {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || p < 0 || p > 100 {
			return 0, fmt.Errorf("evictionHard.%s: %q: want 0%% to 100%%, or a quantity", signal, s)
		}
		return int64(float64(capacity) * p / 100), nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("evictionHard.%s: %q: want a quantity of 0 or more, or a percentage", signal, s)
	}
	return q.Value(), nil
}

// placementOf says how this machine's CPUs and memory are placed. The machine is
// looked at only if they are, or were in an earlier life of the agent.
func placementOf(rootDir string, c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList, read func() (numa.Machine, error)) (fit.Config, error) {
	quiet := func(string, any, string) {} // told by validatePlacement
	cfg := fit.Config{CPUPolicy: c.CPUManagerPolicy, MemoryPolicy: c.MemoryManagerPolicy}
	idle := cfg.Idle() && c.TopologyManagerPolicy == topology.NameNone // devices have nodes too
	if idle && !exists(filepath.Join(rootDir, "placement")) {
		return fit.Config{}, nil
	}
	m, err := read()
	if idle {
		return fit.Config{Machine: m}, nil // without it, what was bound stays bound
	}
	if err != nil {
		return fit.Config{}, fmt.Errorf("cpuManagerPolicy %s, memoryManagerPolicy %s: the machine cannot be read: %w", c.CPUManagerPolicy, c.MemoryManagerPolicy, err)
	}
	cfg.Machine, cfg.PodLevel = m, c.FeatureGates["PodLevelResourceManagers"]
	cfg.CPUOptions = cpuOptions(c, quiet)
	cfg.TopologyPolicy, cfg.TopologyScope = c.TopologyManagerPolicy, topology.Scope(c.TopologyManagerScope)
	cfg.TopologyOptions = topologyOptions(c, quiet)
	if cpus, _ := numa.ParseCPUs(c.ReservedSystemCPUs); !cpus.Empty() {
		cfg.ReservedCPUs.CPUs = cpus
	} else {
		cpu := reserved(c, v1.ResourceCPU)
		cfg.ReservedCPUs.MilliCPU = cpu.MilliValue()
	}
	if c.MemoryManagerPolicy == memmgr.StaticName {
		if cfg.ReservedMemory, err = memoryOf(c, m, capacity); err != nil {
			return fit.Config{}, err
		}
	}
	if _, err := fit.New(cfg); err != nil {
		return fit.Config{}, fmt.Errorf("invalid configuration for this machine, which has CPUs %s on NUMA nodes %s: %w", m.AllCPUs(), m.AllNodes(), err)
	}
	return cfg, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// memoryOf is what is reserved of each node's memory. It adds up to what is
// reserved of the whole; without a list, it is spread over the nodes.
func memoryOf(c *kubeletconfig.KubeletConfiguration, m numa.Machine, capacity v1.ResourceList) (memmgr.Reserved, error) {
	keep, err := hardEviction(c, capacity.Memory().Value())
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	q := reserved(c, v1.ResourceMemory)
	total := map[memmgr.Resource]uint64{memmgr.Memory: uint64(q.Value() + keep)}
	if len(c.ReservedMemory) == 0 {
		r, err := memmgr.Spread(m, total)
		if err != nil {
			return nil, fmt.Errorf("invalid configuration: systemReserved, kubeReserved and evictionHard: %w", err)
		}
		return r, nil
	}
	r := reservedMemory(c, func(string, any, string) {})
	if err := memmgr.ValidateReserved(m, r, total); err != nil {
		return nil, fmt.Errorf("invalid configuration: reservedMemory: want what systemReserved, kubeReserved and evictionHard come to: %w", err)
	}
	return r, nil
}

// readMachine looks at this machine.
func readMachine() (numa.Machine, error) { return sysfs.Read(os.DirFS("/")) }
