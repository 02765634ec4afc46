// Package gc keeps the disks of a node from filling up. [ContainerCollector] removes dead
// containers and their sandboxes, [ImageCollector] removes unused images. Each works alone, over
// a small interface. Package crigc implements the interfaces for a CRI runtime; package
// logrotate limits the logs of containers. A typical program:
//
//	collector, err := gc.NewImageCollector(gc.ImageConfig{Store: crigc.NewImages(client, client)})
//	err = collector.Run(ctx)
//
// Tier: beta.
package gc
