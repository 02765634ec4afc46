//go:build !linux

package footprint

import "context"

func calmMonitor() {}

// Trim does nothing but on Linux.
func (p *Process) Trim(context.Context) {}
