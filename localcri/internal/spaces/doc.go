// Package spaces makes the namespaces that the containers of a sandbox share,
// without a process that holds them: IPC, UTS and user namespaces pinned by a
// mount of their file, with the host name and sysctls set inside, a tmpfs for
// /dev/shm, and a sysfs that privileged containers may write to. The network
// namespace is the network's.
//
// All paths come from the sandbox's ID, so a leftover names its owner. Each
// call may be repeated, whatever a crash left of the one before it.
package spaces
