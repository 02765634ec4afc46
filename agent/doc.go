// Package agent is the core of a node agent: it takes pods from its sources, runs them
// on a CRI runtime, and publishes their statuses.
//
//	a, err := agent.New(agent.Config{
//		Node:    node,                            // node.DetectMachine looks at this machine
//		Paths:   agent.Paths{Root: "/var/lib/edge"},
//		Runtime: client,                          // a *cri.Client is both
//		Images:  agent.Images{Service: client},
//		Sources: []podmgr.Source{manifests},
//		Parts:   []part.Part{evictions, licences}, // what this node does beyond that
//	})
//	if err != nil {
//		return err
//	}
//	return a.Run(ctx)
//
// One loop decides: it hands changes of what is wanted, and of what runs, to
// the pod workers, and never waits for any of them. What it uses can be
// replaced in [Config]: the runtime, the sources, volumes, and where statuses and
// events go.
//
// # Parts
//
// What one node does and another does without is a part: package part has the
// contract, and the packages beside it are the parts of this module (placement,
// devices, claims, resize, eviction, collection, shutdown, mirrors and others).
// Their order in Config.Parts is the order in which they are called; one that is
// left out costs nothing. Package nodeagent knows the usual list.
//
// # Ownership
//
// [New] has no side effects. [Agent.Run] holds a lock on the root directory,
// owns every goroutine and timer, and returns when all have ended. It stops no
// container: what runs when it ends is adopted by the next one.
//
// # Faults
//
// The agent starts whatever it finds: a runtime that is away, a damaged state
// file, a broken manifest, a part whose disk hangs. Nothing is removed before
// every source has spoken and the runtime has been listed. A pod that hangs or
// fails holds up itself alone. A panic of a part, a source, the sink or the event
// recorder is that call's error, logged with its stack and counted. An error with
// which a block or a part ends is the error of Run.
//
// Tier: beta.
package agent
