package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// runtimeConfig is the part of a runtime that reports its cgroup driver: the CRI's
// RuntimeConfig call.
type runtimeConfig interface {
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// podCgroups returns the manager of pod cgroups. It returns nil if the runtime manages them, and
// an error if the configuration does not fit the machine.
func (b *Builder) podCgroups(ctx context.Context, rt runtimeConfig) (agent.Cgroups, error) {
	cfg, ok := b.Config.Cgroups(withPIDs(ctx, b.Node.Capacity, kernel.This))
	if !ok {
		return nil, nil
	}
	cfg.Driver = cgroupDriver(ctx, b.Config, rt, b.Log)
	if cfg.Driver == cgroups.Systemd {
		// With the driver systemd, cgroups are created through systemd, which would otherwise
		// remove or change them.
		cfg.Units = cgroups.SystemdUnits{}
	}
	cfg.ExclusiveCPUs = func(pod *v1.Pod) bool { return b.Facts.OwnCPUs(pod) } // a quota would hinder them
	// While many pods start, one update of the QoS cgroups serves several pods. The first pod of a
	// burst does not wait for an update.
	cfg.TierDelay = time.Second
	cfg.Log, cfg.Metrics = b.Log.Named("cgroups"), b.Metrics
	m, err := cgroups.New(cfg)
	if err != nil {
		// The error is returned here, since a nil *cgroups.Manager in the interface would not be
		// nil.
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return m, nil
}

// withPIDs adds the machine's process IDs to its capacity, if they can be read. Threads
// have IDs as well.
func withPIDs(ctx context.Context, capacity v1.ResourceList, machine *kernel.Reader) v1.ResourceList {
	most, err := machine.MaxThreads(ctx)
	if err != nil {
		return capacity
	}
	capacity = maps.Clone(capacity)
	if capacity == nil {
		capacity = v1.ResourceList{}
	}
	capacity["pid"] = *resource.NewQuantity(most, resource.DecimalSI)
	return capacity
}

// runtimeConfigTimeout is short, because the agent must start even if the runtime has
// not started yet.
const runtimeConfigTimeout = 2 * time.Second

// cgroupDriver returns the driver that the runtime reports (KEP-4033), or the
// configured one if the runtime reports none. The runtime's driver has priority: with
// different drivers, containers would not be below the cgroups of their pods.
func cgroupDriver(ctx context.Context, c *kubeletconfig.Config, rt runtimeConfig, log *zap.Logger) cgroups.Driver {
	ctx, cancel := context.WithTimeout(ctx, runtimeConfigTimeout)
	defer cancel()
	resp, err := rt.RuntimeConfig(ctx)
	if err != nil {
		log.Warn("runtime does not report its cgroup driver; using the configured one", zap.String("driver", c.CgroupDriver), zap.Error(err))
		return cgroups.Driver(c.CgroupDriver)
	}
	if resp.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return cgroups.Systemd
	}
	return cgroups.Cgroupfs
}
