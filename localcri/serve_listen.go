//go:build linux

package localcri

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// checkSocket returns an error that names field if path is not valid for a socket: it must be
// absolute and have at most 107 bytes, since sockaddr_un has no more (unix(7)).
func checkSocket(field, path string) error {
	if !filepath.IsAbs(path) || len(path) > 107 || strings.ContainsRune(path, 0) {
		return fmt.Errorf("serve: %s is %q; want an absolute path of at most 107 bytes", field, path)
	}
	return nil
}

// listen creates the socket. Its mode keeps other users from connecting. Each connection is also
// checked, since the mode is set only after bind.
func listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &ownListener{l}, nil
}

// removeStale removes a socket on which no process listens. Any other file is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &fs.PathError{Op: "listen", Path: path, Err: fmt.Errorf("is of mode %v; want a socket or nothing", info.Mode())}
	}
	const timeout = time.Second // a socket with a full queue is in use
	c, err := net.DialTimeout("unix", path, timeout)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return &fs.PathError{Op: "listen", Path: path, Err: errors.New("another process listens there")}
	}
	return os.Remove(path)
}

// ownListener accepts only connections of root and of this process's user.
type ownListener struct{ net.Listener }

func (l *ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		_ = c.Close()
	}
}

// peer returns the user ID of the connected process.
func peer(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix connection")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if err2 := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err2 != nil {
		return 0, err2
	}
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
