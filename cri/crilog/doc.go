// Package crilog reads the log files that a container runtime writes, one line
// per line of a container, in the format of the CRI logging design document:
//
//	2026-01-02T03:04:05.000000006Z stdout F hello
//
// [Copy] writes what a container wrote: all of it or its end, since a time, of
// one stream or of both, and with Follow whatever comes:
//
//	err := crilog.Copy(ctx, os.Stdout, path, crilog.Options{Tail: 10, Follow: true})
//
// # Rotation
//
// Following goes on over rotations, as package gc and the kubelet make them:
// the log is renamed to <log>.<time> and compressed to <log>.<time>.gz, and the
// runtime begins a new one. What was written before, between and after
// rotations comes once and in order, however many there were since the last
// look. Without Follow the current file alone is read, as the kubelet does.
//
// # Faults
//
// What is no line of that format is copied as it is. A line longer than 256 KiB
// is copied in parts; memory does not grow with a line or with a file, and of 10
// lines at the end no more than 10 times that is looked at. Whoever may write to
// the directory of a log can neither lead elsewhere, for no link is followed
// below Options.Root, nor block anybody: only regular files are opened, and a
// file system that does not answer ends the copy. One log is never read by more
// than one goroutine at a time, however many copies there are.
//
// Tier: beta.
package crilog
