// Package hostile runs the whole agent, as a process of its own, beside pods,
// files and runtimes that mean harm: a table of one attack a row. In each the
// agent has to stay below 256 MiB, and a bystander's probes and restarts have
// to stay on time.
//
// Other tests have the agent live through much: pods that come and go, edits,
// restarts, failed pulls, requests. What it has afterwards without garbage, in
// memory, goroutines and descriptors, must be what it had after the first of
// them. -churn and -lives make them longer, and -profiles writes heap profiles.
// For that the tests build the agent with the tag liveheap.
//
// It has nothing but tests, and none with -race: the agent is another program, whose
// memory the race detector would multiply. The runtime is critest's, served over a
// socket by the test, so that the memory measured is the agent's alone.
package hostile
