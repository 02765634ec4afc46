// Package checkpoint keeps small values in files so that after a crash at any moment, each file
// has the old value or the new one.
//
//	s, err := checkpoint.Open(checkpoint.Config{Dir: "/var/lib/agent/state"})
//	if err != nil {
//		return err
//	}
//	err = s.Write("pod-123", value)
//	...
//	value, err := s.Read("pod-123") // fs.ErrNotExist if there is none
//
// Each value has its own file: a header, a checksum, the value. The new file is written beside
// the old one, synced, and renamed over it; then the directory is synced. [Store.Write] returns
// when all that is done.
//
// # Faults
//
// A file with a wrong checksum is renamed to name.corrupt-N, reported to Config.OnCorrupt, and
// counts as missing. It is never returned, and never stops the program. Opening the store removes
// temporary files of interrupted writes.
//
// Config.NoSync skips the syncs, for values that need not survive a crash of the machine, such as
// facts about running containers.
//
// A file that has more than [MaxValue] bytes or is not a regular file counts as damaged and is
// not read. If the disk does not answer, a call returns at the end of its context, or after 30
// seconds if it takes none. Calls for different keys do not wait for each other. Abandoned calls
// continue, at most 64 at a time and one for each key.
//
// A Store is safe for concurrent use. Two stores must not share a directory.
//
// Tier: beta.
package checkpoint
