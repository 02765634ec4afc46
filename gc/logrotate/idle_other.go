//go:build !linux

package logrotate

// newIdle returns noIdle: this system has no inotify.
func newIdle() idle { return noIdle{} }
