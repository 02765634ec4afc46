// Package facts finds out what package ocispec has to be told: what the machine
// can do, where mounts lead to on the host, which device nodes there are, and
// whom an image knows.
//
// What a host path leads to may be a file system whose server is dead. Calls
// into it run detached, once for each path, and the caller's context ends the
// wait.
package facts
