package podmgr

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// settle is how long a file must have been left alone where it cannot be asked
// whether somebody has it open.
const settle = 100 * time.Millisecond

// beingWritten reports whether somebody has the file open for writing: a read
// lease is only given when nobody has (fcntl(2), F_SETLEASE). The lease lasts
// until f is closed, and who wants to write waits for that, so what is read
// from f is one state of the file. age is the time since the last change of the content;
// it decides where leases do not work.
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

// signatureOf has no inode where the system's own record of the file is missing.
func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), modified: fi.ModTime()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

// changeOf is when a file, or what the file system says of it, was changed last: also
// one that was written elsewhere and put into its place with its old time. A time that
// cannot be known counts as now: such a file is newer than all pods that run.
func changeOf(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Now()
}
