//go:build !linux

package scratch

// NoSwap is false here: there is no tmpfs.
func NoSwap() bool { return false }
