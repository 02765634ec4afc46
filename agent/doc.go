// Package agent joins the blocks of this library into a node agent: it takes
// pods from its sources, runs them on a CRI runtime, and tells how they are.
//
//	a, err := agent.New(agent.Config{
//		Node:    node,              // agent.DetectNode looks at this machine
//		RootDir: "/var/lib/edge",
//		Runtime: client,            // a *cri.Client is both
//		Images:  client,
//		Sources: []podmgr.Source{manifests},
//	})
//	if err != nil {
//		return err
//	}
//	return a.Run(ctx)
//
// One loop decides: it hands changes of what is wanted, and of what runs, to
// the pod workers, and never waits for any of them. What it uses can be
// replaced in [Config]: the runtime, the sources, volumes, admission, and where
// statuses and events go.
//
// # Ownership
//
// [New] has no side effects. [Agent.Run] holds a lock on the root directory,
// owns every goroutine, and returns when all have ended. It stops no
// container: what runs when it ends is adopted by the next one.
//
// # Placement
//
// With Config.Placement, containers of Guaranteed pods get CPUs, and memory of
// few NUMA nodes, of their own: package fit decides which. A container starts
// when what it was given is written down and all others have left its CPUs, and
// keeps them until it ends, whatever becomes of the agent. The others follow
// what is left to share, when that changes and never by polling. A pod that
// lacks only what an ending pod still holds waits for it.
//
// # Shortages, kills and shutdowns
//
// With Config.Eviction, package eviction ends pods when memory, disks or
// processes of the node run low, and pods that exceed their limits of local
// storage; while a condition of pressure holds, pods that would add to it are
// turned away, or wait where nobody would make them again. [Agent.WhyNode]
// tells the figures, and the decisions with theirs. With Config.OOM, a process
// that the kernel kills for want of memory is told with its pod's name. With
// Config.Shutdown, pods end by priority when the machine goes down; an agent
// that merely ends leaves them alone. [Agent.Summary] tells what everything
// uses. All figures are read when somebody asks or decides.
//
// # Faults
//
// The agent starts whatever it finds: a runtime that is away, a damaged state
// file, a broken manifest. Nothing is removed before every source has spoken
// and the runtime has been listed. A pod that hangs or fails holds up itself
// alone.
package agent
