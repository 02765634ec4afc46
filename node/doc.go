// Package node is about the machine below an agent: its capacity ([DetectMachine]), the files
// that pods inherit from it ([MachineFiles]), the lock of a root directory ([LockRoot]), what other agents of it use (Claims), and
// the processes of containers that a runtime has lost ([ReapContainer]).
//
//	lock, err := node.LockRoot("/var/lib/agent")
//	if err != nil {
//		return err // another agent has it
//	}
//	defer lock.Release()
//	machine, err := node.DetectMachine("/var/lib/agent", 110)
//
// The packages below it work alone: status is the status of the v1.Node, stats what the node
// and its pods use, oom the kernel's OOM kills, shutdown ends pods in order when the machine
// shuts down, and logind has it wait for that.
//
// Tier: beta.
package node
