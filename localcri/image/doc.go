// Package image is the image service of a container runtime, inside the process that uses it: a
// CRI ImageManagerService over a directory, without a daemon.
//
//	store, err := image.New(image.Config{RootDir: "/var/lib/agent/images"})
//	if err != nil {
//		return err
//	}
//	go store.Run(ctx)
//	id, err := store.PullImage(ctx, &runtimeapi.ImageSpec{Image: "registry/app:1"}, nil, nil)
//	...
//	root, err := store.Use(ctx, id, containerID)
//	...
//	err = image.Overlay{Layers: root.Layers, Upper: upper, Work: work}.Mount(target)
//
// Images come from registries and their mirrors, from OCI layouts and archives ([Store.Import]),
// or from a directory that is imported at the start. It needs Linux 5.6, root, and a file system
// with trusted extended attributes, or with user extended attributes in a user namespace.
//
// # Layers
//
// A layer is a directory in overlayfs's format. A layer that does not depend on lower layers is
// stored under its diff ID: it is unpacked once for all images that contain it. A layer depends
// on lower ones if its archive has hard links to their files, or entries in directories for which
// it has no entry. Such a layer is stored under its chain ID, with copies of the files and
// attributes that it needs.
//
// Names in archives are relative to the layer's root, even with a leading "/", and so are the
// targets of symbolic links in a path: builders write them in different ways.
//
// Archives and registries are not trusted. Their bytes, entries, depth and time are limited.
// Nothing is unpacked outside the layer's directory, attributes that overlayfs or a security
// module would obey are omitted, and a layer is only used once both its digests match.
//
// # Downloads
//
// Pulls of the same layer share one download; it stops when the last of these pulls is cancelled. A
// later pull continues it, also after a restart or a power failure. If a blob that was continued has
// a wrong digest, it is downloaded once more, from the start.
//
// A download continues at the same server as long as that sends anything, and otherwise at the next
// one. The store waits if the servers ask for it, up to five minutes. Partial downloads, and layers
// of images that are not complete yet, are kept for a day after their last use, or ten minutes if
// pulls lack space. They are removed when the free space is below the reserve.
//
// # Crashes
//
// A layer is unpacked in another directory. It gets its name after its files were synced, and the
// image's record is written after that. So after a power failure an image is either complete or
// missing. Layers that were complete half a minute before are not downloaded again. A damaged record
// affects only its own image. The users of layers are recorded, too: see [Store.Use].
//
// Tier: beta.
package image
