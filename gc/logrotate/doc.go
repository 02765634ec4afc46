// Package logrotate limits the logs of containers: a log that reaches its maximum size is
// rotated, rotated logs are compressed later, and the oldest are removed, so that each
// container has a bounded number of files and each pod, optionally, a bounded number of
// bytes.
//
//	m, err := logrotate.New(logrotate.Config{Runtime: client})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Watch(logrotate.Log{ID: id, Pod: uid, Path: path}) // a container runs
//	m.Forget(id)                                         // it has ended
//
// It needs a runtime that reopens a log whose file was renamed (the CRI's
// ReopenContainerLog). Names and numbers of files are the kubelet's:
// 0.log, 0.log.20260102-150405, and 0.log.20260102-150301.gz for older ones.
// Files of an earlier run, or of the kubelet, are treated as its own.
//
// # When sizes are checked
//
// The size of a growing log is checked when it could have reached the limit at its current
// rate, or twice the limit at a rate of 10 MB a second: every second or two with the defaults,
// at the cost of a stat(2). A log that has not grown for ten seconds is not checked at all; the
// kernel reports the next write (inotify; without it, the size is checked every ten seconds).
// The kubelet makes two calls to the runtime for each container every ten seconds.
//
// # A pod's budget
//
// With Config.PodBudget, after each rotation the oldest rotated files of the pod are removed
// until all of its logs, including those of dead containers, are within that number of bytes.
// Logs in use are never truncated; half of the budget is reserved for them, and each is
// rotated at its share of that half. A log that grows fast can exceed its share by the output
// of a fraction of a second.
//
// # Faults
//
// Files are removed before others are compressed, so a rotation works on a full disk. If the
// runtime fails to reopen a log, the file is renamed back, unless there is a new one. A failed
// compression leaves the file uncompressed; remains of a crash are removed at the next
// rotation. Pods may be able to write to the directories of logs: below the directory of all
// pods' logs no link is followed and only regular files are opened, and a file system that
// does not answer delays no other log. No name is used twice, even if the clock is set back.
// Lines are lost only with whole files, the oldest first.
//
// Tier: beta.
package logrotate
