// Package hostile tests the whole agent, as a process of its own, with malicious pods,
// files and runtimes. Each test has a table with one attack per row. During an attack, the
// agent must use less than 256 MiB, and the probes and restarts of an uninvolved pod must
// stay on time. The attackers of TestAttacks are the author and the container of a pod, a
// viewer of the local API and a device plugin.
//
// Other tests repeat pods, edits, restarts, failed pulls and requests many times.
// Afterwards the agent must have the same live heap, goroutines and descriptors as after
// the first repetition. -churn and -lives set the number of repetitions, and -profiles
// writes heap profiles. These tests build the agent with the tag liveheap.
//
// Three tests use real containers. TestAccountsReachNothing tries, as other user accounts of the
// machine, to open all files and sockets of the agent, of its runtime and of pods of each kind;
// it fails if one can be opened. In TestForkBombStaysInItsPod the attacker is the container of a
// pod, and in TestImageAuthors the author of an image.
//
// The package has only tests. None runs with -race, because the race detector would
// multiply the memory of the agent. The tests use the runtime of package critest. It runs
// in the test's process and serves CRI on a socket, so that its memory does not count as
// the agent's.
package hostile
