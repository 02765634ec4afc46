package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/cgroups/systemd"
)

// runtimeConfig is the part of a runtime that knows who drives cgroups.
type runtimeConfig interface {
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// podCgroups makes what the configuration says of pods' cgroups; nil, if the
// runtime is to do as it likes. ownCPUs tells which pods a quota would hinder.
func podCgroups(ctx context.Context, c *kubeletconfig.KubeletConfiguration, node agent.Node, rt runtimeConfig, ownCPUs func(*v1.Pod) bool, log *zap.Logger, reg prometheus.Registerer) (agent.Cgroups, error) {
	if !*c.CgroupsPerQOS {
		return nil, nil
	}
	cfg := cgroups.Config{
		Root: c.CgroupRoot, Driver: cgroupDriver(ctx, c, rt, log),
		Node:                 divided(c, node.Capacity),
		SystemReservedCgroup: c.SystemReservedCgroup, KubeReservedCgroup: c.KubeReservedCgroup,
		PodOptions: cgroups.PodOptions{
			NoCPUQuota: !*c.CPUCFSQuota, CPUPeriod: c.CPUCFSQuotaPeriod.Duration, Pids: *c.PodPidsLimit, ExclusiveCPUs: ownCPUs,
		},
		Log: log.Named("cgroups"), Metrics: reg,
	}
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
	if cfg.Driver == cgroups.Systemd {
		cfg.Units = systemd.Units{}
	}
	m, err := cgroups.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return m, nil
}

// runtimeConfigTimeout is short: a runtime that is not there yet must not keep
// the agent from starting.
const runtimeConfigTimeout = 2 * time.Second

// cgroupDriver is the runtime's, or that of the configuration if the runtime
// does not tell (KEP-4033).
func cgroupDriver(ctx context.Context, c *kubeletconfig.KubeletConfiguration, rt runtimeConfig, log *zap.Logger) cgroups.Driver {
	ctx, cancel := context.WithTimeout(ctx, runtimeConfigTimeout)
	defer cancel()
	resp, err := rt.RuntimeConfig(ctx)
	if err != nil {
		log.Warn("the runtime does not tell its cgroup driver", zap.String("driver", c.CgroupDriver), zap.Error(err))
		return cgroups.Driver(c.CgroupDriver)
	}
	if resp.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return cgroups.Systemd
	}
	return cgroups.Cgroupfs
}

// divided is what the node has, and what the configuration keeps of it.
func divided(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) cgroups.Node {
	system, kube := reservedLists(c)
	return cgroups.Node{Capacity: capacity, SystemReserved: quantities(system), KubeReserved: quantities(kube), HardEviction: keptFree(c)}
}

// quantities are checked with the configuration.
func quantities(list map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range list {
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// cgroupDrivers and enforcements are what the configuration may name.
var (
	cgroupDrivers = []string{string(cgroups.Cgroupfs), string(cgroups.Systemd)}
	enforcements  = []string{
		string(cgroups.EnforcePods), string(cgroups.EnforceSystem), string(cgroups.EnforceKube),
		string(cgroups.EnforceSystemCompressible), string(cgroups.EnforceKubeCompressible), string(cgroups.EnforceNone),
	}
)

// validateCgroups tells what is wrong with the fields about cgroups.
func validateCgroups(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	if !slices.Contains(cgroupDrivers, c.CgroupDriver) {
		bad("cgroupDriver", c.CgroupDriver, "one of "+strings.Join(cgroupDrivers, ", "))
	}
	for field, p := range map[string]string{
		"cgroupRoot": c.CgroupRoot, "systemReservedCgroup": c.SystemReservedCgroup, "kubeReservedCgroup": c.KubeReservedCgroup,
		"kubeletCgroups": c.KubeletCgroups, "systemCgroups": c.SystemCgroups,
	} {
		if p != "" && !strings.HasPrefix(p, "/") {
			bad(field, p, "an absolute path such as /system.slice")
		}
	}
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		bad("cgroupRoot", c.CgroupRoot, "a cgroup such as / beside systemCgroups: "+c.SystemCgroups)
	}
	if path.Clean(c.SystemCgroups) == "/" {
		bad("systemCgroups", c.SystemCgroups, "another cgroup than the root, where processes are moved from")
	}
	for i, e := range c.EnforceNodeAllocatable {
		switch {
		case !slices.Contains(enforcements, e):
			bad(fmt.Sprintf("enforceNodeAllocatable[%d]", i), e, "one of "+strings.Join(enforcements, ", "))
		case e != string(cgroups.EnforceNone) && !*c.CgroupsPerQOS:
			bad(fmt.Sprintf("enforceNodeAllocatable[%d]", i), e, "none, or cgroupsPerQOS: true beside it")
		}
	}
	if *c.PodPidsLimit < -1 || *c.PodPidsLimit == 0 {
		bad("podPidsLimit", *c.PodPidsLimit, "1 or more, or -1 for no limit")
	}
}
