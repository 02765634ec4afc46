package store

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is how long a file must be unchanged if the kernel cannot tell whether it is open.
const quiet = 100 * time.Millisecond

// beingWritten reports whether the file is open for writing: the kernel grants a read lease only
// if it is not (fcntl(2), F_SETLEASE). The lease lasts until f is closed.
func beingWritten(f *os.File, age time.Duration) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		return false
	}
	// EAGAIN means that there is a writer. Other errors occur for a file of another owner, or a
	// file system without leases; then the age of the file decides.
	return errors.Is(err, unix.EAGAIN) || age >= 0 && age < quiet
}

// signatureOf returns the signature of a file. The times alone would miss an edit that keeps the
// size, within one clock tick of the file system. A renamed file has another inode.
func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = int64(st.Ino), st.Ctim.Nano() //nolint:gosec // only compared
	}
	return s
}
