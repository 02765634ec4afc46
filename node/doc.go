// Package node reads and protects the machine of an agent: its capacity ([DetectMachine]), the
// files that pods inherit from it ([MachineFiles]), the lock of a root directory ([LockRoot]),
// the record of resources that only one agent of a machine can use ([TakeClaims]), and the
// processes of containers that a runtime has lost ([ReapContainer]).
//
//	lock, err := node.LockRoot("/var/lib/agent")
//	if err != nil {
//		return err // another agent has it
//	}
//	defer lock.Release()
//	machine, err := node.DetectMachine("/var/lib/agent", 110)
//
// The packages below it work alone: status computes the status of the v1.Node,
// stats measures the usage of the node and its pods, oom reports the kernel's OOM
// kills, shutdown terminates pods in order when the machine shuts down, and logind
// delays the shutdown.
//
// Tier: beta.
package node
