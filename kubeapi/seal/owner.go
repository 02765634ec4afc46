//go:build unix

package seal

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the ID of the user that owns a file.
func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
