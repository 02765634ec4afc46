// Package nspin pins namespaces: it bind-mounts a namespace's file, as ip-netns(8) does, so
// that the namespace exists without a process. It also runs functions on separate threads,
// which may enter a namespace.
package nspin
