// Package crilog reads the log files that a container runtime writes, one line
// per line of a container, in the format of the CRI logging design document:
//
//	2026-01-02T03:04:05.000000006Z stdout F hello
//
// [Copy] writes the output of a container: all of it or its last lines, since a time, of one stream
// or both. With Follow it goes on with new output:
//
//	err := crilog.Copy(ctx, os.Stdout, path, crilog.Options{Tail: 10, Follow: true})
//
// # Rotation
//
// With Follow a copy continues after rotations by package gc or a kubelet: the log is renamed to
// <log>.<time> and later compressed to <log>.<time>.gz, and the runtime begins a new file. All
// lines are copied once and in order, even if there were several rotations since the last check.
// Without Follow only the current file is read, as in the kubelet.
//
// # Faults
//
// A line that does not have the format is copied as it is. A line longer than 256 KiB is copied in
// parts, so that memory does not grow with the length of a line or file. For the last 10 lines, at
// most 10 times 256 KiB are read. A pod that can write to the directory of its log cannot make the
// copy read other files or block: no link below Options.Root is followed, and only regular files
// are opened. A file system that does not answer ends the copy. At most one goroutine reads a log
// at a time, however many copies there are.
//
// Tier: beta.
package crilog
