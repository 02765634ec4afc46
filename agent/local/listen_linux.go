package local

import "syscall"

// ownerOnly sets the mode of the socket before bind creates its file. If chmod set the mode
// afterwards, any process could connect in between.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
