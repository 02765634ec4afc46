// Package shutdown is the part of a node agent that ends pods in order when the
// machine goes down.
//
//	p, err := shutdown.New(shutdown.Config{
//		Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: logind.New(logind.Config{}),
//		Store: part.OpenStore(filepath.Join(root, "shutdown"), log), Log: log, Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	err = p.ShuttingDown() // makes the node not ready
//
// Package node/shutdown has the order, the groups and the machine; this one
// connects it to an agent.
//
// # Hooks
//
// Admit rejects every pod while the machine goes down. Revives has static pods
// begin that ended or were rejected for a shutdown that was called off, or that
// is over because the machine has started again: nobody else would make another
// one of them. Restore reads what an agent before this one has seen; Run watches
// the machine.
//
// # Ownership
//
// [New] has no side effects. All goroutines end with [Part.Run]. The store is read
// and written off the loop alone; hooks on the loop read memory.
//
// # Faults
//
// The machine is watched whatever the disk and the runtime do: Run reads the
// store itself, and waits for it no longer than two seconds. What is read later is
// not used, and logged. While it is not known yet what an agent before saw, pods
// are admitted if the agent does not wait for Restore. Machine.Release must not
// block: hooks on the loop wait for it.
//
// Tier: beta.
package shutdown
