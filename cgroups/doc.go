// Package cgroups manages the cgroups of a node's pods, on cgroup v1 and v2, directly or
// through systemd: it makes them, sets their limits, reads their usage, and removes them
// with the processes that are left.
//
//	m, err := cgroups.New(cgroups.Config{Node: cgroups.Node{Capacity: capacity, KubeReserved: reserved}})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	if err := m.Ensure(ctx, pod); err != nil { // before the sandbox is made
//		return err
//	}
//	node.CgroupParent = m.CgroupParent(pod) // where the runtime puts containers
//	...
//	err = m.Destroy(ctx, pod.UID) // after the last of them has ended
//
// # The tree
//
//	kubepods                      all pods: what the node has, less what is reserved
//	kubepods/pod<uid>             Guaranteed pods
//	kubepods/burstable/pod<uid>
//	kubepods/besteffort/pod<uid>
//
// The cgroups of containers are the runtime's. With [Systemd] the same tree is
// one of slices; package cgroups/systemd has the [Units] for that, and the
// weight of D-Bus.
//
// # Who decides
//
// What a cgroup is to have, in which order it is written and what comes of it
// are functions of their arguments ([OfPod], [Node], [OfList], the conversions
// of CPU). The rest reads what is there and writes what differs. Nothing runs by
// the clock: [Manager.Run] gives the tiers what their pods request when a pod
// came, changed or went, and sleeps otherwise.
//
// A pod that is resized takes [Manager.Raise], its containers, and
// [Manager.Lower]; [Manager.Ensure] leaves what changes of cpu and memory to
// them, and mends what others changed.
//
// # Ownership
//
// New has no side effects. Whoever comes first, Run or a call for a pod, makes
// kubepods and its tiers. Run owns its goroutine and ends with ctx; a watch has
// one of its own, which ends with the ctx that Watch was given. Pods handed in
// are not changed. Only cgroups below Config.Root with the name of a pod's are
// ever removed.
//
// # Faults
//
// A call of the kernel or systemd that does not come back within
// Config.CallTimeout is given up: it costs its pod an error, one goroutine until
// it ends, and other pods nothing. What the kernel refuses is an error that
// names the file, and keeps none of the other values back. What cannot be
// enforced on the node is tried again with back-off, shows in
// [Manager.Healthy], and keeps no pod from running. After a restart the tiers
// start from what the kernel has for the pods that are there, and no limit that
// containers may have grown into is taken away. A memory limit is not set below
// what is in use.
//
// Tier: beta.
package cgroups
