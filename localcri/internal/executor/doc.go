// Package executor runs an OCI runtime: runc, crun or another with their
// command line (Open Container Initiative Runtime Command Line Interface).
//
// A runtime is a program of ours that talks about containers that are not: its
// output is bounded, it runs in a process group of its own and is killed with
// it at a deadline, and one that does not end even then keeps waiting only the
// next call for the same container.
//
// The commands that leave a container's process behind ([Executor.Create],
// [Executor.Start] and [Executor.Exec]) are not run here. The monitor runs
// them, since the process becomes its child.
package executor
