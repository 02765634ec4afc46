//go:build linux

package monitor

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Escrow returns duplicates of the files of a running container that the client keeps for a
// successor of its monitor. It may be called after Done, until Close.
func (c *Client) Escrow(id string) Escrow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.escrows[id].duplicate()
}

func (e Escrow) duplicate() Escrow {
	return Escrow{Pidfd: duplicate(e.Pidfd), Stdin: duplicate(e.Stdin), Master: duplicate(e.Master)}
}

// duplicate duplicates a file's descriptor. It does not change the file's flags, which
// other processes may share.
func duplicate(f *os.File) *os.File {
	if f == nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	_ = raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) })
	if err != nil || fd < 0 {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func (c *Client) keepEscrow(id, dir string, r reply) {
	e := Escrow{Stdin: r.files[0], Pidfd: r.files[1], Master: r.files[2]} // in the order of wire.FileStdin, FilePidfd and FileMaster
	c.putEscrow(id, dir, e)
}

func (c *Client) putEscrow(id, dir string, e Escrow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.escrows[id].Close()
	c.escrows[id], c.dirs[id] = e, dir
}

func (c *Client) dropEscrow(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.escrows[id].Close()
	delete(c.escrows, id)
	delete(c.dirs, id)
}

// holdPipes opens the output pipes of all containers that are known to run. Otherwise the output
// in the pipes would be lost if a container ended before a successor of the monitor runs. The
// pipes stay open until Close. The caller holds mu.
func (c *Client) holdPipes() {
	for _, dir := range c.dirs {
		for _, name := range []string{"stdout", "stderr"} {
			fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
			if err != nil {
				continue // a container with a terminal has no pipes
			}
			c.held = append(c.held, fd)
		}
	}
}
