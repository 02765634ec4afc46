// Package podmgr holds the pods that should run on a node. It takes them from any number
// of sources and reports changes.
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
// Pods from files and URLs are static: they get the name, the UID and the
// annotations that the kubelet gives them. ConfigMaps, Secrets, PersistentVolumes
// and PersistentVolumeClaims that stand beside them are kept for whoever compiles
// the pods and mounts their volumes, and so are ResourceClaims with a
// status.allocation, which somebody wrote in place of a scheduler.
//
// Pods of other sources are Static, too, unless the source says that somebody
// follows them ([Kinder]). They get defaults and are validated, but for those of
// an API server ([Default], [Validate]).
//
// # Faults
//
// A source that fails is run again. A manifest that would cost much more than its
// size says, a link to what is no stored file, and a file that does not answer are
// problems like others.
//
// A manifest that cannot be read, or that is no valid pod, is a [Problem] that
// names file, document, field and reason; the last good version of what it
// holds stays wanted, also over a restart if the source has a place to
// remember it. A file that is being written is read when its writer is done.
// Of two pods with one name the one that was there first stays.
//
// The objects that the manager hands out are shared. Do not change them.
//
// Tier: beta.
package podmgr
