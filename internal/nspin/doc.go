// Package nspin keeps namespaces of the kernel without a process in them, by a
// mount of their file as ip-netns(8) keeps them, and goes into them and back on
// threads of their own.
package nspin
