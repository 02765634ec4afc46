// Package oom reports which container lost a process to the kernel's OOM killer, at the
// moment of the kill.
//
//	m, err := oom.New(oom.Config{OnKill: func(k oom.Kill) {
//		if k.PodUID != "" {
//			log.Warn("process was OOM killed", zap.String("pod", string(k.PodUID)),
//				zap.String("container", k.ContainerID), zap.String("process", k.Process))
//		}
//	}})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//
// The source is the kernel's log, /dev/kmsg, which names the killed process, its
// cgroup, and the cgroup whose limit was hit. If it cannot be read (in a user
// namespace, or with kernel.dmesg_restrict) the counters of cgroup v2 replace it:
// the kernel wakes [Counters] when a limit below the pods' cgroup is hit, and
// Counters finds the pods whose oom_kill count has grown. Such kills have no
// process and no limit, and processes outside pods are not reported.
//
// [Watcher.Run] starts all goroutines, and returns when they have ended. Calls of
// Config.OnKill do not overlap; during a call further kills stay in the kernel's log.
//
// # Pure parts
//
// An [Assembler] builds kills from the kernel's messages, and [Kill.NodeEvent]
// returns the kubelet's SystemOOM event.
//
// # Faults
//
// A log that ends or fails is opened again with back-off. Records written meanwhile
// are read then, once each: they are numbered. Records that the kernel overwrote
// before they were read are counted. A line that does not parse is counted and
// skipped.
//
// Tier: beta.
package oom
