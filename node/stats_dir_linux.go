package node

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// CgroupFS is os.DirFS for small files of the kernel: it reads one with four system
// calls, where the former needs twice as many, one of them to find out that the
// file cannot be polled. A reading of a full node opens more than a thousand files,
// which is why the difference shows. Paths may lead out of root by links, as with
// os.DirFS.
func CgroupFS(root string) fs.FS { return dir{FS: os.DirFS(root), root: root + "/"} }

// dir has all but ReadFile from os.DirFS.
type dir struct {
	fs.FS
	root string
}

// ReadFile implements fs.ReadFileFS. It blocks as read(2) does: root is to be a
// file system of the kernel's own.
func (d dir) ReadFile(name string) ([]byte, error) {
	fail := func(op string, err error) ([]byte, error) { return nil, &fs.PathError{Op: op, Path: name, Err: err} }
	// The name is appended to the root: ".." must not get this far.
	if !fs.ValidPath(name) {
		return fail("open", fs.ErrInvalid)
	}
	fd, err := retryInterrupted(func() (int, error) { return unix.Open(d.root+name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fail("open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Most files fit, and files of the kernel have no size to go by.
	out := make([]byte, 0, 1024)
	for {
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
		n, err := retryInterrupted(func() (int, error) { return unix.Read(fd, out[len(out):cap(out)]) })
		if err != nil {
			return fail("read", err)
		}
		// Only an empty read is the end: the kernel may return less than asked for.
		if n == 0 {
			return out, nil
		}
		out = out[:len(out)+n]
	}
}

// retryInterrupted calls again what a signal interrupted. The runtime of Go sends signals to
// its own threads to preempt them.
func retryInterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
