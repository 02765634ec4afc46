// Package hostsetup is the part of a node agent that sets up the machine below it, as
// the kubelet does when it starts: parameters of the kernel, how late the agent itself
// is killed when memory is short, and chains of the firewall that others look for.
//
//	p, err := hostsetup.New(hostsetup.Config{Kernel: hostsetup.Set, OOMScore: &score, Chains: true, Log: log})
//
// With Config.Kernel [Check] New refuses a machine whose parameters differ, by name, and
// changes none (protectKernelDefaults).
//
// # Hooks
//
// Run does it all, when the agent begins: it is the only hook. It looks after the
// chains until the agent ends.
//
// # Faults
//
// New changes nothing. A parameter that cannot be set is an event of the node
// (KubeletSetupFailed) and a line in the log; an agent that may not lower its own score
// says so once. The agent runs nevertheless. Nothing is put back at the end: the
// next agent wants the same.
//
// Tier: beta.
package hostsetup
