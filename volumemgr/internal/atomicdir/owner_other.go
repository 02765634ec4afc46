//go:build !linux

package atomicdir

import "io/fs"

func owner(fs.FileInfo) (uid, gid int64, ok bool) { return 0, 0, false }

func (r rootFiles) removeAll(name string) error { return r.RemoveAll(name) }
