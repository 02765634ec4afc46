// Package machine is the machine below a node agent: its capacity ([Detect]), the files
// that pods inherit from it ([Files]), the lock of a root directory ([LockRoot]), and
// the processes of containers that a runtime has lost ([Reap]).
//
// Tier: beta.
package machine
