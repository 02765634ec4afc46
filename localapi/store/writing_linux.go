package store

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is how long a file must have been left alone where it cannot be asked
// whether somebody has it open.
const quiet = 100 * time.Millisecond

// beingWritten reports whether somebody has the file open for writing: a read lease
// is only given when nobody has (fcntl(2), F_SETLEASE). It lasts until f is closed.
func beingWritten(f *os.File, age time.Duration) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		return false
	}
	// EAGAIN is the answer of the kernel when there is a writer. Other errors are those
	// of a file of another owner or of a file system without leases: its age decides.
	return errors.Is(err, unix.EAGAIN) || age >= 0 && age < quiet
}

// signatureOf returns the signature of a file. The times alone would miss an edit
// within one tick of the file system's clock that also keeps the size; a rename has a
// new inode.
func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = int64(st.Ino), st.Ctim.Nano() //nolint:gosec // compared alone
	}
	return s
}
