// Package machine is what a node agent asks of the machine below it: what the
// node has ([Detect]), its own files that pods inherit ([Files]), the lock of a
// root directory ([LockRoot]), and the processes of a container that its runtime
// has lost sight of ([Reap]).
//
// Tier: beta.
package machine
