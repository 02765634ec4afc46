// Package spaces creates the namespaces that the containers of a sandbox share, without a process
// that keeps them alive: IPC, UTS and user namespaces are pinned by bind mounts of their files,
// with the host name and sysctls set inside. It also creates a tmpfs for /dev/shm, and a sysfs
// that privileged containers may write to. Package network creates the network namespace.
//
// All paths contain the sandbox's ID, so that leftovers can be identified. Each call may be
// repeated after a crash.
package spaces
