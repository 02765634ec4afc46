// Package shutdown terminates a node's pods in order when the machine shuts down, and delays
// the shutdown for as long as that takes (KEP-2000, KEP-2712).
//
//	m, err := shutdown.New(shutdown.Config{
//		Requested: 30 * time.Second, // for all pods, of which
//		Critical:  10 * time.Second, // for those of the system
//		Machine:   logind.New(logind.Config{}),
//		Pods:      pods, Killer: workers, Volumes: volumes,
//		State:     store,
//	})
//	if err != nil {
//		return err
//	}
//	err = m.Restore() // before the first pod is admitted
//	go m.Run(ctx)
//	if reason, message, ok := m.Admit(); !ok { ... }
//
// # Order
//
// Pods are terminated in groups by priority, the lowest first. The pods of a group are
// terminated in parallel, each with its own grace period or the group's time, whichever is
// less. The next group follows when their containers have ended and their volumes are
// unmounted, or when the group's time is over. [Plan] is the pure part.
//
// If the shutdown is cancelled, the remaining groups are not terminated.
//
// # The machine
//
// Package [github.com/nodewright/nodewright/node/logind] implements [Machine] with
// systemd-logind over D-Bus. [OnSignal] is for
// machines without it: there a SIGTERM to the agent means that the machine shuts down. Use it
// only where that is so, since a SIGTERM also precedes a restart of the agent, which must not
// terminate any pod.
//
// # Faults
//
// The beginning of a shutdown is written to Config.State first. An agent that is killed and
// started again during a shutdown admits no pods and continues with the remaining ones; after
// a reboot, the agent knows when the last shutdown began and whether it was completed. A
// termination or an unmount that hangs takes its group's time at most. A Machine that fails
// is watched again with back-off.
//
// Tier: beta.
package shutdown
