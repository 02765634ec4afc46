package atomicdir

import (
	"io/fs"
	"syscall"
)

// owner is who owns a file; ok is false where that is not known.
func owner(info fs.FileInfo) (uid, gid int64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int64(st.Uid), int64(st.Gid), true
}
