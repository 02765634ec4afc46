//go:build !linux

package store

import (
	"io/fs"
	"os"
	"time"
)

// quiet is how long a file must have been left alone to count as written.
const quiet = 100 * time.Millisecond

func beingWritten(_ *os.File, age time.Duration) bool { return age >= 0 && age < quiet }

func signatureOf(fi fs.FileInfo) signature {
	return signature{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
}
