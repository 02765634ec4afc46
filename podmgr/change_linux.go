package podmgr

import (
	"io/fs"
	"syscall"
	"time"
)

// changeOf returns the last change of a file's content or inode, which includes a rename. It
// returns the current time if it is unknown, so that the file counts as newer than all running
// pods.
func changeOf(fi fs.FileInfo) time.Time {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return time.Now()
}
