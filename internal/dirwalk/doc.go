// Package dirwalk walks directory trees that other processes own and may change.
// The trees may have any depth and width. A walk uses at most [Descriptors]
// descriptors and less than 4 MiB of memory.
//
//	w, err := dirwalk.Open(dir)
//	...
//	defer w.Close()
//	for {
//		switch event, err := w.Next(); event {
//		case dirwalk.Entry: // w.Fd() has the entry w.Name(); w.Enter() enters a directory
//		case dirwalk.End:   // w.Fd() has no more entries; with err, the rest cannot be read
//		case dirwalk.Back:  // w.Fd() is the parent of the directory that ended
//		case dirwalk.Lost:  // w.Fd() is a higher ancestor of the directory that ended
//		case dirwalk.Done:
//			return
//		}
//	}
//
// The walk uses descriptors only: it follows no link, crosses no mount point and builds
// no path. Directories up to a depth of [Held] stay open. Deeper directories are closed
// when the walk enters a subdirectory. To return, the walk opens "..", and checks that
// this is the directory from which it came. If that directory was moved, or if the walk
// was more than [Remembered] levels deeper, the result is [Lost]: the walk continues in
// the deepest directory that is still open, with the entry after the one through which
// it descended. It leaves out the files below that one which it has not seen.
//
// Entries that are created or removed while their directory is read may be seen or
// not.
package dirwalk

// Limits of a walk.
const (
	// Descriptors is the maximum number of open descriptors.
	Descriptors = Held + 2
	// Held is the number of levels of directories that stay open.
	Held = 24
	// Remembered is the number of closed levels below these for which the walk
	// stores how to return.
	Remembered = 1 << 16
)

// Event is the result of a step of a walk.
type Event int

// The events of a walk.
const (
	// Entry is a name in the current directory.
	Entry Event = iota
	// End means that the directory has no more entries. The next step leaves it.
	End
	// Back means that the walk has left a directory. The current directory is its
	// parent, and the last entry is the directory that was left.
	Back
	// Lost means that the walk has left a directory, and that the current directory is
	// an ancestor of it but not its parent.
	Lost
	// Done means that all entries of the first directory have been read.
	Done
)
