package kubeletconfig

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/cgroups"
)

// pid is the resource name for the number of process IDs in a machine's capacity.
const pid v1.ResourceName = "pid"

// Cgroups returns the configuration of package cgroups for a machine with this capacity. If the
// runtime manages pod cgroups (cgroupsPerQOS: false), ok is false.
//
// If the capacity contains "pid", the number of the machine's process IDs, all pods together may
// use 95% of this number minus the reserved amount. One pod may use half of the amount for all
// pods, unless podPidsLimit is set. Therefore the node can always start processes of its own.
//
// The caller adds Units for the driver systemd, PodOptions.ExclusiveCPUs, a logger and metrics. If
// the runtime reports its cgroup driver, the caller uses the reported driver instead of the
// configured one (KEP-4033).
func (c *Config) Cgroups(capacity v1.ResourceList) (cfg cgroups.Config, ok bool) {
	if !*c.CgroupsPerQOS {
		return cgroups.Config{}, false
	}
	pids := *c.PodPidsLimit
	if all, known := capacity[pid]; known {
		capacity = capacity.DeepCopy()
		capacity[pid] = *resource.NewQuantity(all.Value()-all.Value()/20, resource.DecimalSI)
		if forPods := c.Node(capacity).ForPods()[pid]; pids < 0 {
			pids = max(forPods.Value()/2, 1)
		}
	}
	cfg = cgroups.Config{
		Root: c.CgroupRoot, Driver: cgroups.Driver(c.CgroupDriver), Node: c.Node(capacity),
		SystemReservedCgroup: c.SystemReservedCgroup, KubeReservedCgroup: c.KubeReservedCgroup,
		PodOptions: cgroups.PodOptions{NoCPUQuota: !*c.CPUCFSQuota, CPUPeriod: c.CPUCFSQuotaPeriod.Duration, Pids: pids},
	}
	_, cfg.ReserveMemory, _ = c.MemoryQoS()
	for _, e := range c.EnforceNodeAllocatable {
		cfg.Enforce = append(cfg.Enforce, cgroups.Enforcement(e))
	}
	if len(cfg.Enforce) == 0 {
		cfg.Enforce = []cgroups.Enforcement{cgroups.EnforceNone}
	}
	for name, share := range c.QOSReserved {
		if cfg.QOSReserved == nil {
			cfg.QOSReserved = map[v1.ResourceName]string{}
		}
		cfg.QOSReserved[v1.ResourceName(name)] = share
	}
	return cfg, true
}

func validateCgroups(c *v1beta1.KubeletConfiguration, bad reporter) {
	oneOf(bad, "cgroupDriver", c.CgroupDriver, string(cgroups.Cgroupfs), string(cgroups.Systemd))
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		bad("cgroupRoot", c.CgroupRoot, "a cgroup such as /, as required with systemCgroups: "+c.SystemCgroups)
	}
	if path.Clean(c.SystemCgroups) == "/" {
		bad("systemCgroups", c.SystemCgroups, "a cgroup other than the root cgroup")
	}
	validateEnforcement(c, bad)
	if *c.PodPidsLimit < -1 || *c.PodPidsLimit == 0 {
		bad("podPidsLimit", *c.PodPidsLimit, "1 or more, or -1 for half of the process IDs of all pods")
	}
}

func validateEnforcement(c *v1beta1.KubeletConfiguration, bad reporter) {
	for i, e := range c.EnforceNodeAllocatable {
		field := fmt.Sprintf("enforceNodeAllocatable[%d]", i)
		known := oneOf(bad, field, e, string(cgroups.EnforcePods), string(cgroups.EnforceSystem), string(cgroups.EnforceKube),
			string(cgroups.EnforceSystemCompressible), string(cgroups.EnforceKubeCompressible), string(cgroups.EnforceNone))
		if known && e != string(cgroups.EnforceNone) && !*c.CgroupsPerQOS {
			bad(field, e, "none, or cgroupsPerQOS: true")
		}
	}
}
