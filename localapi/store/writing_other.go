//go:build !linux

package store

import (
	"io/fs"
	"os"
	"time"
)

// quiet is how long a file must be unchanged to count as written.
const quiet = 100 * time.Millisecond

// beingWritten reports whether the file may still be written, by its age, since there are no
// leases.
func beingWritten(_ *os.File, age time.Duration) bool { return age >= 0 && age < quiet }

// signatureOf returns the signature of a file, without inode and ctime. It misses edits that keep
// size and mtime.
func signatureOf(fi fs.FileInfo) signature {
	return signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
}
