// Package eviction keeps a node alive when memory, disk or processes run low:
// it reclaims what no pod needs, and then ends pods in an order that spares
// those that use no more than they asked for.
//
//	thresholds, err := rank.Parse(rank.Text{Hard: hard})
//	m, err := eviction.New(eviction.Config{
//		Stats: stats, Pods: active, Kill: kill, Reclaim: gc, Thresholds: thresholds,
//		Notify: []eviction.Notifier{{Source: psi, Signal: rank.SignalMemory}},
//	})
//	go m.Run(ctx)
//	if r := m.Admit(pod); r != nil { ... } // before a pod begins to run
//	m.Conditions()                         // for the node's status
//	m.Figures()                            // how far each signal is from its threshold
//	m.Decisions()                          // why pods were evicted, and why not
//
// With [Signal] a program adds a resource of its own beside memory, disks and processes.
//
// Package rank has the decisions, for schedulers as well; package notify receives the kernel's
// notifications.
//
// # Observation
//
// Memory, disks, processes and each [Signal] have a goroutine, which reads their node-level signals at
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
// Each reading of a signal is used for one decision only. A reading from before the end of the
// last eviction is not used. A missing reading changes nothing. While the usage of some pods
// cannot be read, only pods that are known to exceed their requests are chosen. An eviction that
// takes 5 s longer than its grace period no longer blocks the choice of another pod; a failed
// eviction is retried after 30 s. A hung disk, or a removal of images that takes minutes, delays
// neither memory nor processes. [Manager.Decisions] lists all of it.
//
// # What it leaves to others
//
// Publication of conditions, taints and their events; termination of pods; access to the
// usage of the node and its pods.
//
// Tier: beta.
package eviction
