// Package emptydir makes emptyDir volumes: a directory of the pod's own that
// lives as long as the pod, on the node's disk, in its memory (tmpfs) or in its
// huge pages (hugetlbfs).
//
//	p, err := emptydir.New(emptydir.Config{
//		Mounter:     &mount.Kernel{},
//		Allocatable: func() int64 { return memoryOfNode },
//	})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin
//
// A volume in memory is as large as the smallest of what the node has to give,
// the pod's memory limit and the sizeLimit. It is kept out of swap where the
// kernel can do that. A volume on disk has no limit while it is written, unless
// Config.Quota sets one: its sizeLimit is the eviction manager's business.
//
// # Faults
//
// A marker in the volume's state directory says that it was made complete. One
// that was is never touched again; one that was not is completed, and its
// content stays. After a restart of the machine a volume in memory is mounted
// anew. Removal stops at mount points: what containers mounted below the volume
// is neither removed nor entered.
package emptydir
