package safefile

import (
	"os"
	"time"
)

// writtenAfter is the time without changes after which a file counts as written, where the kernel
// cannot tell whether it is open.
const writtenAfter = 100 * time.Millisecond

// BeingWritten reports whether a process has the file open for writing. If no process has, Linux
// lets writers wait until f is closed, so that f is read in one consistent state. Where the kernel
// cannot tell, for example for a file of another owner, age decides: the time since the last change
// of the content. A negative age, of a clock that was set back, does not count.
func BeingWritten(f *os.File, age time.Duration) bool {
	if writing, known := hasWriter(f); known {
		return writing
	}
	return age >= 0 && age < writtenAfter
}

// Signature has the values of a file that change when the file is written or replaced. Signatures
// are compared with ==.
type Signature struct {
	size, mtime int64
	// The times alone would miss an edit that keeps the size, within one clock tick of the file
	// system, and a file that was renamed to this path. Both are 0 where fi does not have them.
	inode, ctime int64
}

// Modified returns the time of the last change of the content, in nanoseconds since 1970.
func (s Signature) Modified() int64 { return s.mtime }
