// Package executor runs the commands of an OCI runtime: runc, crun or another with their command
// line (Open Container Initiative Runtime Command Line Interface).
//
// The runtime itself is trusted, but it handles containers that are not. So its output is
// limited, and it runs in a process group of its own, which is killed at a deadline. If it does
// not exit even then, only the next command for the same container waits for it.
//
// The commands that leave a container's process running ([Executor.Create], [Executor.Start] and
// [Executor.Exec]) are not run here. The monitor runs them, since it has to be the parent of the
// process.
package executor
