//go:build !linux

package safefile

import (
	"io/fs"
	"os"
)

// hasWriter is not known, since there are no leases.
func hasWriter(*os.File) (writing, known bool) { return false, false }

// SignatureOf returns the signature of a file, without inode and ctime. It misses edits that keep
// size and mtime.
func SignatureOf(fi fs.FileInfo) Signature {
	return Signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
}
