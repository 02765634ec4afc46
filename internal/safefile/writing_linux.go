package safefile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasWriter asks for a read lease, which the kernel grants only if no process has the file open for
// writing (fcntl(2), F_SETLEASE). The lease lasts until f is closed.
func hasWriter(f *os.File) (writing, known bool) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	writing = errors.Is(err, unix.EAGAIN)
	return writing, err == nil || writing
}

// SignatureOf returns the signature of a file.
func SignatureOf(fi fs.FileInfo) Signature {
	s := Signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = int64(st.Ino), st.Ctim.Nano() //nolint:gosec // only compared
	}
	return s
}
