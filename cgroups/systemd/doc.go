// Package systemd makes the slices of systemd in which package cgroups keeps
// pods, over D-Bus and through opencontainers/cgroups. It stands apart so that
// those who drive cgroups themselves link no D-Bus.
//
//	m, err := cgroups.New(cgroups.Config{Driver: cgroups.Systemd, Units: systemd.Units{Version: cgroups.V2}})
//
// The calls of that library have no deadline; cgroups.Manager waits for them no
// longer than Config.CallTimeout.
//
// It is there on Linux alone.
//
// Tier: beta.
package systemd
