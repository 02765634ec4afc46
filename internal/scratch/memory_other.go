//go:build !linux

package scratch

// NoSwap returns false: there is no tmpfs.
func NoSwap() bool { return false }
