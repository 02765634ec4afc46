//go:build !linux

package rootless

import "context"

// Enter does nothing on this system.
func Enter(context.Context, Config) error { return nil }

// Check returns nil on this system.
func Check(context.Context) error { return nil }

// Visit does nothing on this system.
func Visit(context.Context, string) error { return nil }

// Remove calls stop on this system.
func Remove(_ context.Context, _ string, stop func() error) error { return stop() }

// Limits returns nil on this system.
func Limits(context.Context, string) []string { return nil }
