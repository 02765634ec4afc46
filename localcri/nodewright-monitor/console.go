//go:build linux

package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// console receives the master of a terminal from the executor.
type console struct {
	l        *loop
	path     string
	listener int
	conn     int
	master   int
}

func (l *loop) console(path string) (*console, error) {
	c := &console{l: l, path: path, listener: -1, conn: -1, master: -1}
	_ = unix.Unlink(path)
	var err error
	if c.listener, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if err = unix.Bind(c.listener, &unix.SockaddrUnix{Name: path}); err == nil {
		_ = unix.Chmod(path, 0o600)
		err = unix.Listen(c.listener, 1)
	}
	if err != nil {
		c.close()
		return nil, errors.New(path + ": " + err.Error())
	}
	return c, nil
}

// take returns the master that the executor has sent. It does not wait, since the executor has
// ended.
func (c *console) take() (int, error) {
	for c.master < 0 {
		if c.conn < 0 {
			fd, _, err := unix.Accept4(c.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != nil {
				return -1, errors.New("the OCI runtime sent no terminal")
			}
			c.conn = fd
		}
		var b [4096]byte
		oob := make([]byte, unix.CmsgSpace(4*4))
		n, oobn, _, _, err := unix.Recvmsg(c.conn, b[:], oob, unix.MSG_CMSG_CLOEXEC)
		for _, fd := range rights(oob[:max(oobn, 0)]) {
			if c.master < 0 && isMaster(fd) {
				c.master = fd
			} else {
				_ = unix.Close(fd)
			}
		}
		if c.master < 0 && (err != nil || n <= 0) {
			_ = unix.Close(c.conn)
			c.conn = -1
		}
	}
	fd := c.master
	c.master = -1
	return fd, nil
}

func (c *console) close() {
	if c == nil {
		return
	}
	closeFiles([]int{c.listener, c.conn, c.master})
	c.listener, c.conn, c.master = -1, -1, -1
	_ = unix.Unlink(c.path)
}

// isMaster reports whether a descriptor is the master of a pseudo terminal.
func isMaster(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	return err == nil
}

// rights returns the descriptors in a control message.
func rights(oob []byte) []int {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}
