// Package facts collects the input of package ocispec: the abilities of the machine, the targets
// of mounts on the host, its device nodes, and the users of an image.
//
// A host path may lead to a network file system whose server is dead. So each call into a file
// system runs in a goroutine of its own, one for each path at a time. A caller stops waiting when
// its context ends.
package facts
