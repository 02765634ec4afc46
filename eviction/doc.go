// Package eviction keeps a node alive when memory, disk or processes run low:
// it reclaims what no pod needs, and then ends pods in an order that spares
// those that use no more than they asked for.
//
//	thresholds, err := threshold.Parse(threshold.Text{Hard: hard})
//	m, err := eviction.New(eviction.Config{
//		Stats: stats, Pods: active, Kill: kill, Reclaim: gc, Thresholds: thresholds,
//		Notify: []eviction.Notifier{{Source: psi, Signal: threshold.Memory}},
//	})
//	go m.Run(ctx)
//	if r := m.Admit(pod); r != nil { ... } // before a pod begins to run
//	m.Conditions()                         // for the node's status
//	m.Figures()                            // how far each signal is from its threshold
//	m.Decisions()                          // why pods were evicted, and why not
//
// Package threshold has the signals and the grammar of their thresholds,
// package rank the order of eviction and the limits of local storage, both
// pure and of use to a scheduler; package notify has the kernel's notices.
//
// # Looking
//
// Memory, disks and processes each have a goroutine of their own, which reads
// their few figures when something is to be decided: every 10 s at the latest;
// sooner while a figure falls towards its threshold; at once when a notifier
// says so, when an eviction has ended, and when the grace of a soft threshold
// or the transition of a condition is over. Figures of pods are read when one
// of them has to be chosen, and for the pods that have limits.
//
// # Acting
//
// A threshold that is met makes its condition hold at once, and for a
// transition period after; it is acted upon when its grace is over, until the
// signal has recovered by the minimum to reclaim. Every signal has a state of
// its own, and a threshold is done with when its own signal has recovered.
//
// Containers that have ended go first, then unused images, where that frees
// the filesystem in question; after each of them the figures are read again.
// Then pods: one, or as many as it takes to free what is needed, at most
// Config.Victims at a time. Those within their requests are chosen one by one,
// and only when no other can be, and no eviction is under way. Critical pods
// (Config.Critical) are never chosen.
//
// # Faults
//
// No decision is made on a figure twice, nor on one from before the last
// eviction ended. Figures that are missing change nothing; while some pods
// cannot be read, only pods that are known to exceed their requests are
// chosen. An eviction that takes 5 s longer than its grace is no longer
// counted on, so that another pod can be chosen; one that fails is tried again
// after 30 s. A hung disk or a removal of images that takes minutes holds up
// neither memory nor processes. All of it shows in [Manager.Decisions].
//
// # What it leaves to others
//
// Publishing conditions, taints and their events; ending pods; what it takes
// to read figures.
//
// Tier: beta.
package eviction
