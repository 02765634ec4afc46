// Package nspin keeps namespaces without a process, with a mount of their file as
// ip-netns(8) does. It also runs functions in a namespace, on threads of their own.
package nspin
