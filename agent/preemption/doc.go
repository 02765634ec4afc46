// Package preemption is the part of a node agent that ends lesser pods for a critical
// one that does not fit beside them.
//
//	p, err := preemption.New(preemption.Config{Standalone: alone, Log: log, Metrics: registry})
//
// A pod is critical if it is static or has the priority of system pods; where all
// pods are static (Config.Standalone), by its priority alone. The
// least by class go first, and no more of them than is needed.
//
// # Hooks
//
// Victims chooses, once nothing but what others request keeps the pod from running,
// and Preempt says how a victim ends: in its own time, with status Failed, reason
// Preempting, condition DisruptionTarget and an event. The agent ends nobody in vain:
// it asks all parts first whether the pod would be admitted then. Until all victims
// have ended the pod waits; in place of one that does not end within its grace period
// and half a minute others are chosen. Revives has a static victim begin again when
// the pod that it ended for is wanted no more, since nobody else makes another one;
// Explain says so.
//
// # Ownership and faults
//
// There is no goroutine and no state but which static pods ended for which. After a
// restart of the agent these are tried once, when all pods that run are known, and admitted
// if they fit.
//
// Tier: beta.
package preemption
