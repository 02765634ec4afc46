package local

import "syscall"

// ownerOnly sets the mode of the socket before its file exists: between bind and chmod, any process
// could connect.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
