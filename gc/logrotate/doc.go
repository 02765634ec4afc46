// Package logrotate keeps the logs of containers small: a log that reaches its
// size is put aside, compressed later, and the oldest are removed, so that each
// container has a bounded number of files and each pod, if that is wanted, a
// bounded number of bytes.
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
// What an earlier run left, or the kubelet, counts as its own.
//
// # When it looks
//
// A log that grows is looked at when it could reach its limit at the rate at
// which it grew, or be twice as large if it began to grow by Config.Burst right
// away: every second or two with the defaults, at the cost of a stat(2). A
// log that did not grow for ten seconds is not looked at at all; the kernel
// reports the next write (inotify; where there is none it is looked at every
// ten seconds). The kubelet asks the runtime twice for each container every ten
// seconds.
//
// # A pod's budget
//
// With Config.PodBudget the files of a pod take no more than that many bytes,
// the dead containers' logs included, as soon as any of its logs was rotated:
// the oldest rotated files go first. Logs in use are never cut; instead each may
// grow to no more than its part of half of the budget, which is kept free for
// them. A log that grows fast may pass that by what comes in a fraction of a
// second.
//
// # Faults
//
// What goes is removed first, and compression comes last, so a rotation needs no
// space on a full disk. A runtime that does not reopen a log gets it back under
// its name, unless it has made a new one. A compression that fails leaves the
// file as it is; what a crash left of one is cleared away at the next rotation.
// Pods may be able to write to the directories of logs: no link below the
// directory of all pods' logs is followed, nothing but regular files is opened,
// and a file system that does not answer holds up no other log.
// A name is never used twice, whatever the clock does. No line is lost but with
// whole files, the oldest first.
//
// Tier: beta.
package logrotate
