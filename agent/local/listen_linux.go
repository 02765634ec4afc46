package local

import "syscall"

// ownerOnly has the socket's file begin with the mode it is to have: between
// bind and chmod anybody could connect.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
