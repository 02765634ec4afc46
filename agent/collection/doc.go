// Package collection is the part of a node agent that removes garbage: images that
// no pod needs, dead containers with their sandboxes and log directories, and
// logs that have grown too large.
//
//	p, err := collection.New(collection.Config{
//		Runtime: runtime, Images: runtime, PodLogsDir: "/var/log/pods",
//		Store: part.OpenStore(filepath.Join(root, "imagegc"), log), Log: log, Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	answer, err := p.Images(ctx)  // which images there are, and what would become of each
//	reclaim := p.Reclaimer()      // for package eviction
//
// It connects packages gc/imagegc, gc/containergc and gc/logrotate to an agent.
//
// # Hooks
//
// Hold and HoldImage keep everything of a pod, and the images it is being made
// of, from being removed while its worker works on it. Happened follows the
// runtime: a dead container is looked at a second later, and the log of one that
// runs is watched. Sweep removes log directories of pods that are gone. Join needs
// an agent that is a [part.Garbage].
//
// # When
//
// Dead containers are removed and logs rotated from when the runtime has been
// listed; images only when every source has spoken, unless somebody reclaims.
//
// # Ownership
//
// [New] has no side effects; every goroutine ends with [Part.Run]. Happened hands
// changes of logs over to one of them, through a queue that is bounded and holds
// each pod and container once: watching a log may wait for its disk. When the
// queue is full, changes are dropped, and are made up for within five minutes by
// a look at everything that runs.
//
// # Faults
//
// A store that fails costs the memory of when images were used last; one that
// hangs holds up the collection of images and nothing else. A runtime that hangs
// costs its call's deadline, and holds up the one pod whose container it is
// removing.
//
// Tier: beta.
package collection
