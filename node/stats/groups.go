package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Groups reads the usage of the other cgroups from files: the cgroup of all pods, the cgroups of
// the QoS classes, and Config.SystemCgroups. The root cgroup and missing cgroups are left out. The
// results have no rate of CPU use. The error joins all failures; values that could be read are
// returned too.
func (m *Collector) Groups() ([]Detail, error) {
	c := m.cgroups()
	dirs := map[string]bool{}
	var errs []error
	if m.cfg.PodsCgroup != noCgroup {
		dirs[rel(m.cfg.PodsCgroup)] = true
		// Guaranteed pods have no class of their own: they are right below the root
		// of pods.
		tiers, err := c.tiers(rel(m.cfg.PodsCgroup))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("stats: list cgroups of QoS classes: %w", err))
		}
		for _, dir := range tiers {
			dirs[dir] = true
		}
	}
	if m.cfg.SystemCgroups != nil {
		// A set: the agent may run in one of the other cgroups.
		for _, dir := range m.cfg.SystemCgroups() {
			dirs[rel(dir)] = true
		}
	}
	names := m.deviceNames()
	var out []Detail
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if dir == rel("/") {
			continue // the machine
		}
		u, err := c.read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stats: cgroup /%s: %w", dir, err))
			continue
		}
		// The cgroup was removed since the first file was read.
		d, _, ok := c.detail(dir, names)
		if !ok {
			continue
		}
		d.Usage = &statsapi.ContainerStats{StartTime: m.cgroupStart(c, dir)}
		setContainer(d.Usage, u, nil)
		out = append(out, d)
	}
	return out, errors.Join(errs...)
}

// tiers returns the cgroups of the QoS classes below the cgroup of all pods, relative to the
// root of the hierarchy. On v1 it reads the memory controller.
func (c cgroups) tiers(root string) (dirs []string, err error) {
	names, err := c.Children(context.Background(), root)
	for _, name := range names {
		if isTier(name) {
			dirs = append(dirs, path.Join(root, name))
		}
	}
	return dirs, err
}

// isTier reports whether a cgroup in the cgroup of all pods is the cgroup of a QoS class. It
// accepts the names of both cgroup drivers: "burstable", or "kubepods-burstable.slice" of systemd.
func isTier(name string) bool {
	tier := strings.TrimSuffix(name, ".slice")
	return strings.HasSuffix(tier, "burstable") || strings.HasSuffix(tier, "besteffort")
}
