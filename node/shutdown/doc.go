// Package shutdown ends a node's pods in order when the machine goes down, and
// holds the machine up for as long as that takes.
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
// Pods go by priority, the lowest first, in groups. All of a group are ended
// side by side, each with its own grace period or the group's time, whichever
// is less. The next group's turn comes when their containers have ended and
// their volumes are unmounted, or when the group's time is over. [Plan] and
// [Split] are the pure part of that.
//
// A shutdown can be called off: what has not begun by then does not begin.
//
// # The machine
//
// Package logind is the [Machine] of systemd, over D-Bus. [OnSignal] is for
// machines without: the agent's SIGTERM means that the machine goes down. Only
// whoever starts the agent knows whether it does, as a SIGTERM is also how an
// agent is restarted, which must not end any pod.
//
// # Faults
//
// That the machine goes down is written to Config.State before anything else
// happens. An agent that is killed and started again during a shutdown admits
// no pods, and goes on with those that are left; one that starts after a
// reboot knows when the last shutdown began and whether it came to its end. A
// kill or an unmount that hangs costs its group's time and no more. A Machine
// that fails is watched again with back-off.
//
// Tier: beta.
package shutdown
