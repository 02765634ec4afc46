//go:build !linux

package scratch

// NoSwap returns false, since this system has no tmpfs.
func NoSwap() bool { return false }
