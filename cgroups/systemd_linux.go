package cgroups

import (
	"context"
	"errors"
	"fmt"
	"maps"

	oci "github.com/opencontainers/cgroups"
	ocisystemd "github.com/opencontainers/cgroups/systemd"
)

// ErrSystemdNotRunning means that the machine was not booted with systemd.
var ErrSystemdNotRunning = errors.New("systemd is not running")

// SystemdUnits is the Units of the systemd that runs on this machine. Its methods may be called
// from any goroutine.
type SystemdUnits struct {
	// Version is the version of the machine's cgroups; 0 detects it.
	Version Version
}

var _ Units = SystemdUnits{}

// Start implements cgroups.Units.
func (u SystemdUnits) Start(ctx context.Context, unit, parent string) error {
	m, err := u.manager(ctx, unit, parent)
	if err != nil {
		return err
	}
	return m.Apply(-1) // no process: it only makes the slice
}

// Set implements cgroups.Units.
func (u SystemdUnits) Set(ctx context.Context, unit, parent string, r Resources) error {
	m, err := u.manager(ctx, unit, parent)
	if err != nil {
		return err
	}
	return m.Set(properties(u.version(), r))
}

// Stop implements cgroups.Units.
func (u SystemdUnits) Stop(ctx context.Context, unit, parent string) error {
	m, err := u.manager(ctx, unit, parent)
	if err != nil {
		return err
	}
	return m.Destroy()
}

func (u SystemdUnits) version() Version {
	switch {
	case u.Version != 0:
		return u.Version
	case oci.IsCgroup2UnifiedMode():
		return V2
	default:
		return V1
	}
}

func (u SystemdUnits) manager(ctx context.Context, unit, parent string) (oci.Manager, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !ocisystemd.IsRunningSystemd() {
		return nil, fmt.Errorf("unit %s: %w", unit, ErrSystemdNotRunning)
	}
	config := &oci.Cgroup{Name: unit, Parent: parent, Systemd: true, Resources: &oci.Resources{SkipDevices: true, SkipFreezeOnSet: true}}
	if u.version() == V2 {
		return ocisystemd.NewUnifiedManager(config, "")
	}
	return ocisystemd.NewLegacyManager(config, nil)
}

// properties returns the values of r that have a systemd property.
func properties(v Version, r Resources) *oci.Resources {
	out := &oci.Resources{
		SkipDevices: true, SkipFreezeOnSet: true,
		CpusetCpus: r.CPUSet, CpuQuota: value(r.CPUQuota), CpuPeriod: value(r.CPUPeriod),
		Memory: value(r.Memory), PidsLimit: r.Pids,
	}
	if r.MemorySwap != nil && value(r.Memory) > 0 {
		out.MemorySwap = Unlimited
		if *r.MemorySwap >= 0 {
			out.MemorySwap = *r.Memory + *r.MemorySwap // systemd's library counts both together
		}
	}
	if v == V1 {
		out.CpuShares = value(r.CPUShares)
		return out
	}
	out.CpuWeight = weightOf(value(r.CPUShares))
	out.Unified = maps.Clone(r.Unified)
	return out
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
