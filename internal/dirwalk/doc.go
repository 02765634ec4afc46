// Package dirwalk walks through trees of directories that somebody else has
// made and may be changing: of any depth and width, with at most [Descriptors]
// descriptors and less than 4 MiB.
//
//	w, err := dirwalk.Open(dir)
//	...
//	defer w.Close()
//	for {
//		switch event, err := w.Next(); event {
//		case dirwalk.Entry: // w.Name() in w.Fd(); w.Enter() goes into it
//		case dirwalk.End:   // w.Fd() has no more entries; err says why, if that is a fault
//		case dirwalk.Back:  // w.Fd() is the parent of what ended
//		case dirwalk.Lost:  // w.Fd() is some ancestor of it
//		case dirwalk.Done:
//			return
//		}
//	}
//
// Everything is done by descriptors: a walk follows no link, crosses no mount
// point and builds no path. Directories up to a depth of [Held] stay open. From
// deeper ones the walk returns by "..", and only to the directory that it came
// from: where that was moved meanwhile, or is more than [Remembered] levels up,
// the walk is Lost, goes on after the entry of the deepest directory that is
// open still, and has left out what it had not seen below that.
//
// What appears or goes while a directory is read may be seen or not.
package dirwalk

// What a walk costs at most.
const (
	// Descriptors is how many are open at a time.
	Descriptors = Held + 2
	// Held is how many levels of directories stay open.
	Held = 24
	// Remembered is how many levels below those a walk finds its way back from.
	Remembered = 1 << 16
)

// Event is what a step of a walk came to.
type Event int

// The events.
const (
	// Entry is a name in the current directory.
	Entry Event = iota
	// End means that there are no more. The next step leaves the directory.
	End
	// Back means that the directory that ended was left: its parent is the
	// current one, behind its entry.
	Back
	// Lost is as Back, but the current directory is a farther ancestor.
	Lost
	// Done means that the directory that the walk began with has ended.
	Done
)
