package nodeagent

import (
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// peer returns the ID of the process that listens on a Unix socket (SO_PEERCRED, unix(7)). It
// blocks for a second at most. It closes the connection without sending anything, which runtimes
// ignore.
func peer(endpoint string) (int, error) {
	c, err := net.DialTimeout("unix", strings.TrimPrefix(endpoint, "unix://"), time.Second)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%s is not a Unix socket", endpoint)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	// On the client side, these are the credentials of the process that called listen(2).
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); ctlErr != nil {
		return 0, ctlErr
	}
	if err != nil {
		return 0, err
	}
	if cred.Pid <= 1 { // a process of another PID namespace, or a socket that systemd has opened
		return 0, fmt.Errorf("%s: its listener is process %d", endpoint, cred.Pid)
	}
	return int(cred.Pid), nil
}
