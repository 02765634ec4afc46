//go:build linux

package monitor

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files are open files of a running container, which a monitor's client keeps for a successor of
// the monitor. A file may be nil.
type Files struct {
	Pidfd  *os.File // of the container's first process
	Stdin  *os.File // write end of standard input
	Master *os.File // of the terminal
}

// Close closes all files.
func (f Files) Close() {
	for _, file := range []*os.File{f.Pidfd, f.Stdin, f.Master} {
		if file != nil {
			_ = file.Close()
		}
	}
}

func (f Files) duplicate() Files {
	return Files{Pidfd: duplicate(f.Pidfd), Stdin: duplicate(f.Stdin), Master: duplicate(f.Master)}
}

// spare is what a client keeps of a running container for a successor of its monitor.
type spare struct {
	files Files
	dir   string // FIFODir of the container
}

// Files returns duplicates of the files of a container, which the caller has to close. It may be
// called after Done, until Close.
func (c *Client) Files(id string) Files {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spares[id].files.duplicate()
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

// spareOf returns what a monitor sent of a running container.
func spareOf(r reply) spare {
	// In the order of wire.FileStdin, FilePidfd and FileMaster.
	return spare{files: Files{Stdin: r.files[0], Pidfd: r.files[1], Master: r.files[2]}, dir: r.m.FIFODir}
}

func (c *Client) putSpare(id string, s spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spares[id].files.Close()
	c.spares[id] = s
}

func (c *Client) dropSpare(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spares[id].files.Close()
	delete(c.spares, id)
}

// holdPipes opens the output pipes of all containers that are known to run. Otherwise the output
// in the pipes would be lost if a container ended before a successor of the monitor runs. The
// pipes stay open until Close. The caller holds mu.
func (c *Client) holdPipes() {
	for _, s := range c.spares {
		for _, name := range []string{"stdout", "stderr"} {
			fd, err := unix.Open(filepath.Join(s.dir, name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
			if err != nil {
				continue // a container with a terminal has no pipes
			}
			c.held = append(c.held, fd)
		}
	}
}
