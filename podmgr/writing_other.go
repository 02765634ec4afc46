//go:build !linux

package podmgr

import (
	"io/fs"
	"os"
	"time"
)

// settle is the time without changes after which a file counts as written.
const settle = 100 * time.Millisecond

// beingWritten reports whether a file may still be being written. It uses only the age of the last
// change, since this system has no read leases.
func beingWritten(_ *os.File, age time.Duration) bool {
	return age >= 0 && age < settle
}

// signatureOf returns size and time only.
func signatureOf(fi fs.FileInfo) signature {
	return signature{size: fi.Size(), modified: fi.ModTime()}
}

// changeOf returns the current time: every file counts as new.
func changeOf(fs.FileInfo) time.Time { return time.Now() }
