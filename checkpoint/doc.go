// Package checkpoint keeps small values in files so that a crash at any moment
// leaves the old value or the new one, and nothing else.
//
//	s, err := checkpoint.Open(checkpoint.Config{Dir: "/var/lib/agent/state"})
//	if err != nil {
//		return err
//	}
//	err = s.Write("pod-123", value)
//	...
//	value, err := s.Read("pod-123") // fs.ErrNotExist if there is none
//
// Each value is a file of its own: a header, a checksum, the value. It is
// written beside the old one, synced, renamed over it, and the directory is
// synced. [Store.Write] returns when all that is done.
//
// # Faults
//
// A file with a wrong checksum is renamed to name.corrupt-N, reported to
// Config.OnCorrupt, and counts as missing. It is never returned, and never stops
// the program. Temporary files of an interrupted write are removed when the store
// is opened.
//
// Values that need not survive a crash of the machine, such as facts about running
// containers, can skip the syncs: Config.NoSync.
//
// A file of more than [MaxValue] bytes, or that is no regular file, counts as
// damaged and is not read. A disk that does not answer blocks a call no longer than
// its context or Config.Timeout. Calls for different keys do not wait for each
// other. Abandoned calls continue, at most 64 at a time and one for each key.
//
// A Store may be used from any goroutine. Two stores must not share a
// directory.
//
// Tier: beta.
package checkpoint
