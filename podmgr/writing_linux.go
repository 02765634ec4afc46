package podmgr

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// settle is the time without changes after which a file counts as written, where read leases do
// not work.
const settle = 100 * time.Millisecond

// beingWritten reports whether a process has the file open for writing. The kernel grants a read
// lease only if no process has (fcntl(2), F_SETLEASE). While the lease is held, writers wait, so
// f is read in one consistent state. Where leases do not work, age decides: the time since the
// last change of the content.
func beingWritten(f *os.File, age time.Duration) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	default: // not supported here, or not our file
		// A negative age is a clock that was set back:
		// it must not keep the file from being read.
		return age >= 0 && age < settle
	}
}

// signatureOf returns the signature of a file, without the inode if fi does not have it.
func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), modified: fi.ModTime()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

// changeOf returns the last change of a file's content or inode, which includes a rename. It
// returns the current time if it is unknown, so that the file counts as newer than all running
// pods.
func changeOf(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Now()
}
