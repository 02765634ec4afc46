// Package cdi gives containers the devices of the Container Device Interface:
// it finds them in the specifications that vendors leave on the machine, and puts
// what they ask for into the configuration of an OCI runtime.
//
// The words, their rules and the changes themselves are those of
// tags.cncf.io/container-device-interface. The files are read here, in bounds and
// without a watcher: each call of [Registry.Inject] looks at the directories, and
// reads again the files that have changed. A file that was written before the call
// counts, however short before.
//
// # Trust
//
// A specification decides which files of the host a container gets, and which
// programs an OCI runtime runs as root (hooks). One that anybody but root, or the
// user of this process, could have written is set aside.
package cdi
