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
// One goroutine, the loop, decides. It passes changes of the wanted and of the running
// pods on to the pod workers, and never waits for a worker. [Config] has everything
// that can be replaced: the runtime, the sources, volumes, and the destinations of
// statuses and events.
//
// # Parts
//
// A feature that not every node needs is a part. Package part has the contract, and the
// packages beside it have the parts of this module (placement, devices, claims, resize,
// eviction, collection, shutdown, mirrors and others). They are called in the order of
// Config.Parts; a part that is not in this list costs nothing. Package nodeagent has
// the list of parts that the kubelet's features need.
//
// # Ownership
//
// [New] has no side effects. [Agent.Run] holds a lock on the root directory, owns every
// goroutine and timer, and returns when all have ended. It stops no container: the next
// agent adopts the containers that run when it ends.
//
// # Faults
//
// The agent starts even if the runtime does not answer, a state file is damaged, a
// manifest is invalid, or the disk of a part hangs. It removes nothing before every
// source has delivered and the runtime has been listed. A pod that hangs or fails
// delays no other pod. A panic of a part, a source, the sink or the event recorder is
// that call's error, logged with its stack and counted. An error with which a block or
// a part ends is the error of Run.
//
// Tier: beta.
package agent
