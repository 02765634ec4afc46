//go:build !linux

package local

import "syscall"

// ownerOnly does nothing; chmod sets the mode. On other systems a socket has no mode before its
// file exists.
func ownerOnly(_, _ string, _ syscall.RawConn) error { return nil }
