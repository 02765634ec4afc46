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
// A file whose checksum does not fit is never returned and never stops the
// program: it is renamed to name.corrupt-N, where a person can look at it, the
// caller is told through Config.OnCorrupt, and the value counts as not there.
// What a crash left half-written is cleared away when the store is opened.
//
// Values that die with the machine anyway, such as facts about running
// containers, can do without the syncing: Config.NoSync.
//
// A file of more than [MaxValue] bytes is damaged, too, and is not read; so is what
// is no regular file. A disk that does not answer holds up nobody for longer than the
// context of a call, or Config.Timeout, and one key does not wait for another: calls
// go on without their callers, at most 64 at a time and one for each key.
//
// A Store may be used from any goroutine. Two stores must not share a
// directory.
//
// Tier: beta.
package checkpoint
