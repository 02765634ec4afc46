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
	return errors.Is(err, unix.EAGAIN) || age >= 0 && age < quiet
}

func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = int64(st.Ino), st.Ctim.Nano() //nolint:gosec // compared alone
	}
	return s
}
