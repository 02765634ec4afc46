// Package facts collects the input of package ocispec: the abilities of the machine, the targets
// of mounts on the host, its device nodes, and the users of an image.
//
// A host path may lead to a network file system whose server is dead. Calls into file systems run
// in goroutines of their own, one for each path at a time; a caller stops waiting when its
// context ends.
package facts
