// Package cdi gives devices to containers with the Container Device Interface (CDI): it finds
// devices in the specifications that vendors install on the machine ([Registry.Devices]), and
// applies their edits to the configuration of a container ([Registry.Inject]).
//
// The format, its rules and the edits come from tags.cncf.io/container-device-interface. This
// package reads the files itself, with limits and without a watcher: each call lists the
// directories and reads the files that have changed. So a file that was written just before the
// call is used.
//
// # Trust
//
// A specification decides which files of the host a container gets, and which programs an OCI
// runtime runs as root (hooks). A file that anybody but root, or the user of this process, can
// write is ignored. [Trusted] is the rule for directories.
package cdi
