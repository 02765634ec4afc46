// Package podmgr holds the pods that should run on a node. It reads them from any number of
// sources and reports changes.
//
// A [Source] delivers its full state each time: [Directory] reads manifests
// from a folder, [HTTP] from a URL, and a cluster's API server could be
// another. The [Manager] merges them, keeps what is wanted now, and sends the
// differences:
//
//	dir, err := podmgr.Directory(podmgr.DirectoryConfig{Path: "/etc/manifests", NodeName: "edge-1"})
//	...
//	m, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{dir}})
//	...
//	go m.Run(ctx)
//	for change := range m.Changes() {
//		...
//	}
//
// Pods from files and URLs are static pods: their name, UID and annotations are those that the
// kubelet would give them. ConfigMaps, Secrets, PersistentVolumes and PersistentVolumeClaims in
// the same manifests are kept for the code that compiles the pods and mounts their volumes.
// ResourceClaims are kept too; since no scheduler allocates them, the manifest has to contain
// their status.allocation.
//
// Pods of other sources are static as well, unless the source implements [Kinder]. All
// pods are defaulted and validated ([Default], [Validate]), except those of an API server,
// which has done so.
//
// # Faults
//
// A source that returns is run again. A manifest that cannot be read, or that is not a valid pod,
// is a [Problem] with the file, document, field and reason. So is a manifest that expands to far
// more than its size (YAML aliases, large exponents), a link to anything but a regular file, and a
// file whose file system does not answer. The last valid version of the manifest remains in effect,
// also over a restart if the source has a Memory. A file that is being written is read after its
// writer has closed it. If two pods have the same name, the one that came first is in effect.
//
// The objects that the manager hands out are shared. Do not change them.
//
// Tier: beta.
package podmgr
