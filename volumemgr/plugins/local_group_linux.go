package plugins

import (
	"io/fs"
	"syscall"
)

func groupOf(info fs.FileInfo) (gid int64, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int64(st.Gid), true
}
