package atomicdir

import (
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/nodewright/nodewright/internal/rmtree"
)

// removeAll removes trees of any depth. It stops at mount points in them.
func (r rootFiles) removeAll(name string) error { return rmtree.Remove(filepath.Join(r.Name(), name)) }

// owner returns the owner of a file; ok is false if it is unknown.
func owner(info fs.FileInfo) (uid, gid int64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int64(st.Uid), int64(st.Gid), true
}
