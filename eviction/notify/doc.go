// Package notify reports at once when the kernel sees memory running short. Its
// triggers are files that the kernel makes readable:
//
//	src := notify.New(
//		notify.PSI("/proc/pressure/memory", 0, 0),                // tasks of the node wait for memory
//		notify.Events("/sys/fs/cgroup/kubepods/memory.events"),   // a limit of all pods is hit (cgroup v2)
//		notify.Usage("/sys/fs/cgroup/memory/kubepods"),           // a level of usage (cgroup v1)
//	)
//	err := src.Run(ctx, func(cause string) { ... })
//
// A [Source] waits for all of its triggers in one goroutine and one thread, in poll(2), and costs
// nothing while nothing happens. PSI triggers are those of the kernel's
// Documentation/accounting/psi.rst: it reports once for each window in which tasks were stalled for
// longer than the threshold. They exist for the node and, with cgroup v2, for each cgroup. Levels
// of usage are those of Documentation/admin-guide/cgroup-v1/memory.rst; they are set by
// [Source.Aim], since they change with the amount of memory that the kernel can reclaim.
//
// # Faults
//
// [Source.Problems] lists the triggers that cannot be set up. If no trigger can be set up, Run
// returns an error that names them. If the cgroup of a trigger is removed, Run returns an error;
// call Run again to set up the triggers anew. A [Fake] does the same in memory.
//
// Tier: beta.
package notify
