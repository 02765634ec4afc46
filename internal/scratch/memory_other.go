//go:build !linux

package scratch

// NoSwap always returns false here.
func NoSwap() bool { return false }
