//go:build !linux

package podmgr

import (
	"io/fs"
	"os"
	"time"
)

// settle is how long a file must have been left alone.
const settle = 100 * time.Millisecond

// beingWritten goes by the age alone: there are no read leases to ask the kernel with.
func beingWritten(_ *os.File, age time.Duration) bool {
	return age >= 0 && age < settle
}

// signatureOf goes by size and time alone.
func signatureOf(fi fs.FileInfo) signature {
	return signature{size: fi.Size(), modified: fi.ModTime()}
}

// changeOf is not known here: every file counts as new.
func changeOf(fs.FileInfo) time.Time { return time.Now() }
