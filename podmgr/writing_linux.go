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

// stuckWriter is how long after its last change a file is read although
// somebody still has it open for writing.
const stuckWriter = 2 * time.Second

// beingWritten tells whether somebody has the file open for writing: a read
// lease is only given when nobody has (fcntl(2), F_SETLEASE).
func beingWritten(f *os.File, fi fs.FileInfo, now time.Time) bool {
	if now.Sub(fi.ModTime()) > stuckWriter {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	default: // not supported here, or not our file
		return now.Sub(fi.ModTime()) < settle
	}
}

func signatureOf(fi fs.FileInfo) signature {
	s := signature{size: fi.Size(), modified: fi.ModTime()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}
