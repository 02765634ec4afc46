// Package filesink is a sink of statusmgr for a node that stands alone: one
// JSON file per pod, a v1.Pod with metadata and status as kubectl would print
// it.
//
//	sink, err := filesink.New(filesink.Config{Dir: "/var/lib/agent/status"})
//	if err != nil {
//		return err
//	}
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
//
// The files are DIR/<namespace>_<name>_<uid>.json, readable for owner and
// group. A file whose content would stay is not touched. After a restart
// [Sink.Load] gives back what was published; [Sink.Prune] removes the files of
// pods that are gone.
//
// # Faults
//
// A file is written beside the old one and renamed over it: a reader, and a
// crash of the process, see the old status or the new one. With Config.Sync
// that holds for a failure of the power as well. A full disk is an error, and
// the old file stays. A damaged file is renamed to <file>.corrupt-N, told
// through Config.OnCorrupt, and counts as not there. What a crash left
// half-written is removed at the first use.
package filesink
