// Package image is the image half of a container runtime, inside the process
// that uses it: a CRI ImageManagerService over a directory, without a daemon.
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
// Images come from registries and their mirrors, from OCI layouts and archives
// ([Store.Import]), or from a directory that is read at the start. Linux 5.6 and
// root are needed, and a file system with trusted extended attributes.
//
// # Layers
//
// A layer is a directory in overlayfs's format. One whose archive stands alone is
// kept by its diff ID: it is unpacked once, whatever images have it and in
// whatever order they come. Where an archive implies directories or links to files
// of the layers below, it is kept by its chain ID, with what it needs of them.
// Pulls that want one layer share one download; it stops when the last of them
// has gone, and the next pull within an hour goes on from there.
//
// Names in archives are relative to the layer's root whatever they begin with, as
// are the links on their way: builders differ in how they write them.
//
// What archives and registries say is hostile. Everything is bounded in bytes,
// entries, depth and time; nothing is unpacked outside the layer's directory, what
// overlayfs or a security module would obey is left out, and a layer is only used
// once both its digests are right.
//
// # Crashes
//
// A layer is unpacked beside the others. It gets its name after its files were
// synced, and an image's record is written after that: after a power cut an image
// is there and whole, or not there. A record that is damaged costs that image
// only. Who uses layers is on record, too: see [Store.Use].
//
// Tier: beta.
package image
