// Package eviction keeps a node alive when memory, disk or processes run low:
// it reclaims what no pod needs, and then ends pods in an order that spares
// those that use no more than they asked for.
//
//	thresholds, err := eviction.ParseThresholds(eviction.ThresholdText{Hard: hard})
//	m, err := eviction.New(eviction.Config{
//		Stats: stats, Pods: active, Kill: kill, Reclaim: gc, Thresholds: thresholds,
//		Notify: []eviction.Notifier{{Source: psi, Signal: eviction.SignalMemory}},
//	})
//	go m.Run(ctx)
//	if r := m.Admit(pod); r != nil { ... } // before a pod begins to run
//	m.Conditions()                         // for the node's status
//	m.Figures()                            // how far each signal is from its threshold
//	m.Decisions()                          // why pods were evicted, and why not
//
// [ParseThresholds] and [SortRanked] are pure and useful to schedulers; [KernelSource] receives
// the kernel's notifications. See below.
//
// # Observation
//
// Memory, disks and processes each have a goroutine, which reads their node-level signals at
// least every 10 s; more often while a signal approaches its threshold; and at once when a
// notifier fires, when an eviction has ended, and when the grace period of a soft threshold
// or the transition period of a condition is over. Usage of pods is read only when a pod has
// to be chosen, and for pods with limits.
//
// # Action
//
// When a threshold is met, its condition becomes true at once and remains so for a
// transition period afterwards. After the threshold's grace period, the node reclaims until
// the signal has recovered by the minimum reclaim. Every signal has its own state, and a
// threshold is resolved when its own signal has recovered.
//
// Dead containers are removed first, then unused images, where that frees the filesystem in
// question; the signals are read again after each step. Then pods are evicted: one, or as
// many as are needed, at most Config.Victims at a time. Pods within their requests are
// chosen one at a time, when no other pod is left and no eviction is under way. Critical
// pods (Config.Critical) are never chosen.
//
// # Faults
//
// Each reading of a signal is used for one decision only, and a reading from before the end
// of the last eviction for none. A missing reading changes nothing; while the usage of some
// pods cannot be read, only pods that are known to exceed their requests are chosen. An
// eviction that takes 5 s longer than its grace period no longer blocks the choice of another
// pod; a failed one is retried after 30 s. A hung disk, or a removal of images that takes
// minutes, delays neither memory nor processes. [Manager.Decisions] lists all of it.
//
// # What it leaves to others
//
// Publication of conditions, taints and their events; termination of pods; access to the
// usage of the node and its pods.
//
// # Signals and thresholds
//
// The vocabulary of node-pressure eviction is public: the signals of a
// node, the thresholds set for them, and the grammar in which the kubelet's
// configuration writes them.
//
//	list, err := eviction.ParseThresholds(eviction.ThresholdText{
//		Hard:      map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
//		Soft:      map[string]string{"memory.available": "500Mi"},
//		SoftGrace: map[string]string{"memory.available": "1m30s"},
//	})
//	for _, t := range list {
//		if obs, ok := observed[t.Signal]; ok && t.Met(obs) {
//			...
//		}
//	}
//
// Everything in it is pure: there is no clock, no I/O and no goroutine. A
// [Threshold] is comparable, and can be the key of a map.
//
// # Order of pods
//
// [SortRanked] orders pods as a node under pressure evicts them, and finds those that
// exceed their limits of local storage. A scheduler or a simulator can ask it what a
// node would do:
//
//	order := eviction.SortRanked(eviction.RankRules{}, eviction.SignalMemory, []eviction.Candidate{
//		{Pod: web, Usage: &eviction.Usage{Memory: 900 << 20}},
//		{Pod: db, Usage: &eviction.Usage{Memory: 3 << 30}},
//	})
//	first := order[0] // would be evicted first
//
// The comparators are the kubelet's, in its order:
//
//	memory         above its request; lower priority; further above its request
//	disk, inodes   above its request; lower priority; further above its request
//	pid            lower priority; more processes
//
// A pod without figures comes before those with, wherever figures are
// compared; a figure that is missing counts as 0. Pods that are equal in all
// of it keep their order, where the kubelet's changes from call to call.
//
// Everything is pure, costs one look at each pod and one sort, and changes
// nothing that is handed in. Requests are in whole units: what a container
// asks for is rounded up to a byte.
//
// # Notices of the kernel
//
// [KernelSource] reports at once when the kernel sees memory running short. Its
// triggers are files that the kernel makes readable:
//
//	src := eviction.NewKernelSource(
//		eviction.PSITrigger("/proc/pressure/memory", 0, 0),                // tasks of the node wait for memory
//		eviction.EventsTrigger("/sys/fs/cgroup/kubepods/memory.events"),   // a limit of all pods is hit (cgroup v2)
//		eviction.UsageTrigger("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/kubepods"), // a level of usage (cgroup v1)
//	)
//	err := src.Run(ctx, func(cause string) { ... })
//
// A [KernelSource] waits for all of its triggers in one goroutine and one thread, in
// poll(2), and costs nothing while nothing happens. PSI triggers are those of
// the kernel's Documentation/accounting/psi.rst: it reports once for each window
// in which tasks were stalled for longer than the threshold. They exist for
// the node and, with cgroup v2, for each cgroup. Levels of usage are those of
// Documentation/admin-guide/cgroup-v1/memory.rst; they are set by
// [KernelSource.Aim], since the thresholds move with what the kernel could drop.
//
// # Notices of the kernel: faults
//
// A trigger that cannot be set up is named in the error with which Run ends
// if there is no other; [KernelSource.Problems] lists those that are missing. One
// whose cgroup is removed makes Run end with an error, so that it can be set
// up anew. A [FakeSource] does the same in memory.
//
// Tier: beta.
package eviction
