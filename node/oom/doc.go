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
// The source is the kernel's log, /dev/kmsg, which says who was killed, in
// which cgroup, and whose limit was hit. Where it cannot be read (a user
// namespace, kernel.dmesg_restrict) the counters of cgroup v2 take its place:
// [Counters] is woken by the kernel when a limit below the pods' cgroup is hit
// and finds the pods whose oom_kill count grew. They know no process and no
// limit, and nothing of processes outside pods.
//
// [Watcher.Run] owns every goroutine. Config.OnKill is called by one of them,
// one kill after the other; while it lasts, kills wait in the kernel's log.
//
// # Pure parts
//
// An [Assembler] makes kills of the kernel's messages, and [Kill.NodeEvent] is the
// kubelet's SystemOOM event.
//
// # Faults
//
// A log that ends or fails is opened again with back-off, and what was written
// meanwhile is read then, once: records are numbered. Records that the kernel
// overwrote before they were read are counted. A line that does not parse is
// counted and passed over.
//
// Tier: beta.
package oom
