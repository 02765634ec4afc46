// Package pressure has the parts of a node agent that deal with a machine that fills up: what
// is used, what is removed as garbage, and which pods end when memory, disk or room for a critical
// pod is short. Each part is a [part.Part] of its own: an agent without one has neither its behavior
// nor its weight.
//
//	stats, err := pressure.NewStats(pressure.StatsConfig{...})
//	collection, err := pressure.NewCollection(pressure.CollectionConfig{...})
//	evict, err := pressure.NewEviction(pressure.EvictionConfig{Stats: stats.ForEviction(), Reclaim: collection.Reclaimer(), ...})
//
// The parts:
//
//   - [Stats]: what the node and its pods use
//   - [Collection]: images, dead containers and logs that are removed
//   - [Eviction]: pods that end under node pressure
//   - [OOMKills]: events of the kernel's OOM kills
//   - [Preemption]: pods that end for a critical one
//
// # Collectors over CRI
//
// The collectors of package gc work on a CRI runtime without an agent, too: [CRIImages] is a
// [gc.ImageStore], [CRIContainers] is a [gc.ContainerRuntime], and [CRIContainers.Running] lists
// the logs for a [logrotate.Manager].
//
//	client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil {
//	return err
//	}
//	images := pressure.NewCRIImages(client, client)
//	m, err := gc.NewImageCollector(gc.ImageConfig{Store: images})
//
// What never changes is asked for once: the log and the image mounts of a
// container, the end of one that has ended, the labels of an image. So a pass
// of any collector is two or three calls, and one for each container that is
// new.
//
// Tier: beta.
package pressure
