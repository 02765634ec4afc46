// Package node is about the machine as a node: the status of its v1.Node ([Status]), what it and
// its pods use ([Stats]), OOM kills by the kernel ([OOMWatcher]), its shutdown ([Shutdown]), and the
// machine itself ([DetectMachine]). Each works alone.
//
// # The machine
//
// What an agent has to know of the machine below it: its capacity ([DetectMachine]), the files
// that pods inherit from it ([MachineFiles]), the lock of a root directory ([LockRoot]), and
// the processes of containers that a runtime has lost ([ReapContainer]).
//
// Tier: beta.
package node
