// Package hostile tests the whole agent, as a process of its own, with malicious
// pods, files and runtimes. Each test has a table with one attack a row. In each,
// the agent must stay below 256 MiB, and the probes and restarts of an uninvolved
// pod must stay on time. The attackers of TestAttacks are the author and the container of a
// pod, a viewer of the local API and a device plugin.
//
// Other tests repeat pods, edits, restarts, failed pulls and requests many times.
// Afterwards the agent's memory, goroutines and descriptors, without garbage, must
// equal those after the first repetition. -churn and -lives set the number of
// repetitions, and -profiles writes heap profiles. These tests build the agent with
// the tag liveheap.
//
// TestAccountsReachNothing has real containers: it looks as other accounts of the machine
// at all that the agent, its runtime and pods of each kind have, and fails on what opens.
// TestForkBombStaysInItsPod and TestImageAuthors have them too: the attacker is the container of
// a pod, and somebody who makes images.
//
// The package has only tests, and none with -race: the agent is another program,
// whose memory the race detector would multiply. The runtime is critest's. The test
// serves it over a socket, so that the measured memory is the agent's alone.
package hostile
