// Package claims is the part of a node agent that gives pods the devices of their
// ResourceClaims (dynamic resource allocation, KEP-4381).
//
//	known := &claims.Lookup{}
//	manager, err := dra.New(dra.Config{Claims: known, Store: store, Boot: boot})
//	...
//	p, err := claims.New(claims.Config{Manager: manager, Lookup: known, Log: log})
//	...
//	agent.New(agent.Config{Parts: []part.Part{devices, p}})
//
// # Hooks
//
// Restore hands the manager the containers that run, and Run runs it from then on
// and has pods synced whose driver came or whose devices changed their health.
// Prepare has drivers make the claims of a pod ready; what it waits for, or what
// failed, is an event of the pod. Compile adds the CDI devices to containers, and
// Report their health (KEP-4680) to the status. Stopped has drivers undo it,
// before the final status is shown: a pod that has come to its end holds no
// claim. Sweep has that done for pods that are gone, in the background.
//
// # Ownership
//
// The manager is the part's from Join on: nobody else calls Restore, Run or
// Retain. Run owns every goroutine, and returns when no call of a driver is under
// way.
//
// # Faults
//
// Compile and Report read memory only; the part has no hook on the loop. A driver
// that hangs holds up the pods that use its claims. So does a disk that hangs,
// since what was prepared is stored; pods without claims never wait for either,
// not even before Restore is done.
//
// Tier: beta.
package claims
