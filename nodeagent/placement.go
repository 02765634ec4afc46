package nodeagent

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// placementDir has the checkpoints of placement, below the root directory.
const placementDir = "placement"

// Placement makes the part that assigns CPUs and memory to containers, on the
// machine's NUMA nodes: see [resources.Placement].
func Placement(b *Builder) (part.Part, error) {
	conf, err := b.placement()
	if err != nil {
		return nil, err
	}
	p, err := resources.NewPlacement(resources.PlacementConfig{
		Fit: conf, Runtime: b.Runtime, Store: b.Store(placementDir, "placement"), KubeletDir: b.Config.RootDir, Log: b.Log.Named("placement"), Metrics: b.Metrics,
	})
	if err != nil {
		return nil, err
	}
	b.Facts.OwnCPUs = p.OwnCPUs
	if !p.Idle() {
		b.Facts.CPUs.Give(p.CPUs())
		b.Facts.Memory.Give(p.Memory())
	}
	return p, nil
}

// placement returns the configuration of the placement of CPUs and memory. Devices and Placement
// get the same result.
func (b *Builder) placement() (fit.PlacementConfig, error) {
	return placementOf(b.Path(placementDir), b.Config, b.Node.Capacity, b.numa)
}

// placementOf returns the configuration of placement. The machine is read only if
// placement is configured, or if the directory of records exists: then placement was
// configured earlier, and running containers keep their CPUs after the policies are
// turned off. The error names the policies, or the field that does not fit the machine.
func placementOf(dir string, c *kubeletconfig.Config, capacity v1.ResourceList, read func() (numa.Machine, error)) (fit.PlacementConfig, error) {
	if c.PlacesNothing() && !exists(dir) {
		return fit.PlacementConfig{}, nil
	}
	m, err := read()
	if c.PlacesNothing() {
		return fit.PlacementConfig{Machine: m}, nil // needed to release CPUs that were assigned before
	}
	if err != nil {
		return fit.PlacementConfig{}, fmt.Errorf("cpuManagerPolicy %s, memoryManagerPolicy %s: the machine cannot be read: %w", c.CPUManagerPolicy, c.MemoryManagerPolicy, err)
	}
	cfg := fit.PlacementConfig{
		Machine: m, PodLevel: c.PodLevelResources(),
		CPUPolicy: c.CPUManagerPolicy, CPUOptions: c.CPUOptions(), ReservedCPUs: c.CPUReservation(),
		MemoryPolicy:   c.MemoryManagerPolicy,
		TopologyPolicy: c.TopologyManagerPolicy, TopologyScope: topology.Scope(c.TopologyManagerScope), TopologyOptions: c.TopologyOptions(),
	}
	if c.MemoryManagerPolicy == memmgr.StaticName {
		if cfg.ReservedMemory, err = c.MemoryReservation(m, capacity.Memory().Value()); err != nil {
			return fit.PlacementConfig{}, err
		}
	}
	// Checked here, so that the error names the CPUs and NUMA nodes of the machine.
	if _, err := fit.NewPlacement(cfg); err != nil {
		return fit.PlacementConfig{}, fmt.Errorf("invalid configuration for this machine, which has CPUs %s on NUMA nodes %s: %w", m.AllCPUs(), m.AllNodes(), err)
	}
	return cfg, nil
}

// exists reports whether a file or directory exists at path. It returns false if that cannot be
// found out.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
