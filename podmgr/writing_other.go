//go:build !linux

package podmgr

import (
	"io/fs"
	"os"
	"time"
)

const settle = 100 * time.Millisecond

func beingWritten(_ *os.File, fi fs.FileInfo, now time.Time) bool {
	return now.Sub(fi.ModTime()) < settle
}

func signatureOf(fi fs.FileInfo) signature {
	return signature{size: fi.Size(), modified: fi.ModTime()}
}
