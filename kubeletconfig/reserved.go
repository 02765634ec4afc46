package kubeletconfig

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/numa"
)

// Node returns a machine's capacity together with its reservations and eviction thresholds, from
// which cgroups.Node computes the part for pods. The configuration must be valid.
func (c *Config) Node(capacity v1.ResourceList) cgroups.Node {
	system, kube := c.reservedLists()
	return cgroups.Node{Capacity: capacity, SystemReserved: quantities(system), KubeReserved: quantities(kube), HardEviction: c.HardEviction()}
}

// Reserved returns the sum of a resource in systemReserved and kubeReserved. The configuration must
// be valid.
func (c *Config) Reserved(name v1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	system, kube := c.reservedLists()
	for _, list := range []map[string]string{system, kube} {
		if s, ok := list[string(name)]; ok {
			sum.Add(resource.MustParse(s)) // validated before
		}
	}
	return sum
}

// reservedLists returns systemReserved and kubeReserved. As in the kubelet, the number of
// reservedSystemCPUs replaces the amounts of CPU in both.
func (c *Config) reservedLists() (system, kube map[string]string) {
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

// quantities parses a list of quantities. It panics if one is invalid.
func quantities(list map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range list {
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// memoryKeptFree returns the hard eviction threshold for memory (evictionHard, memory.available;
// default 100Mi) in bytes. As in the kubelet, reservedMemory must include this amount. capacity is
// the machine's memory in bytes.
func (c *Config) memoryKeptFree(capacity int64) (int64, error) {
	const signal = "memory.available"
	s, ok := c.HardEviction()[signal]
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
	q, err := quantity.Parse(s)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("evictionHard.%s: %q: want a quantity of 0 or more, or a percentage", signal, s)
	}
	return q.Value(), nil
}
