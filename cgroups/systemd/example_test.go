package systemd_test

import (
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/cgroups/systemd"
)

// Cgroups of pods as slices of systemd, on a machine with cgroup v2.
func ExampleUnits() {
	m, err := cgroups.New(cgroups.Config{Driver: cgroups.Systemd, Units: systemd.Units{Version: cgroups.V2}})
	if err != nil {
		panic(err)
	}
	_ = m
}
