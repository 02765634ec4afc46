package cgroups_test

import (
	"github.com/nodewright/nodewright/cgroups"
)

// Cgroups of pods as slices of systemd, on a machine with cgroup v2.
func ExampleSystemdUnits() {
	m, err := cgroups.New(cgroups.Config{Driver: cgroups.Systemd, Units: cgroups.SystemdUnits{Version: cgroups.V2}})
	if err != nil {
		panic(err)
	}
	_ = m
}
