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
// The cgroups of containers belong to the runtime. With [Systemd], the same tree consists of
// slices; [SystemdUnits] are the [Units] for it.
//
// # Decisions
//
// The limits of a cgroup and the order in which they are written are computed by pure
// functions ([OfPod], [Node], [OfList]). The rest reads the current
// values and writes those that differ. Nothing runs by the clock: [Manager.Run] adjusts the
// QoS tiers to the requests of their pods when a pod comes, changes or goes, and sleeps
// otherwise.
//
// To resize a pod, call [Manager.Raise], resize its containers, and call [Manager.Lower].
// [Manager.Ensure] does not apply resizes of CPU and memory, but restores values that
// others have changed.
//
// # Ownership
//
// New has no side effects. kubepods and its tiers are created by Run or by the first call
// for a pod. Run owns its goroutine and ends with ctx; each Watch owns one that ends with
// the ctx of that call. Pods are not changed. Only cgroups below Config.Root that are named
// like a pod's are ever removed.
//
// # Faults
//
// A call of the kernel or systemd that takes longer than ten seconds is abandoned:
// its pod gets an error, one goroutine remains until the call ends, and other pods are not
// affected. A value that the kernel refuses is an error that names the file; the other
// values are written all the same. Node-wide limits that cannot be enforced are retried with
// back-off and reported by [Manager.Healthy], and no pod is kept from running. After a
// restart the tiers start from the kernel's current values for the existing pods, so that no
// limit is lowered below what containers may be using. A memory limit is never set below the
// current usage.
//
// # Slices of systemd
//
// [SystemdUnits] creates the slices of systemd, over D-Bus and through
// opencontainers/cgroups. Programs that use [Cgroupfs] and do not name it link no
// D-Bus.
//
//	m, err := cgroups.New(cgroups.Config{Driver: cgroups.Systemd, Units: cgroups.SystemdUnits{Version: cgroups.V2}})
//
// The calls of that library have no deadline; a Manager waits for them no longer
// than ten seconds. SystemdUnits exists only on Linux.
//
// Tier: beta.
package cgroups
