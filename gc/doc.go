// Package gc keeps the disks of a node from filling up: it removes dead containers and their
// sandboxes ([ContainerCollector]), and images that nobody needs ([ImageCollector]). Each works
// alone, behind a small interface to the runtime. Package crigc has those interfaces for a CRI runtime,
// package logrotate limits the logs of containers. Most programs need these alone:
//
//	collector, err := gc.NewImageCollector(gc.ImageConfig{Store: crigc.NewImages(client, client)})
//	err = collector.Run(ctx)
//
// Tier: beta.
package gc
