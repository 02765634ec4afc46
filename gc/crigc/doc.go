// Package crigc runs the collectors of package gc over a CRI runtime, with or without an agent:
// [Images] is a [gc.ImageStore], [Containers] a [gc.ContainerRuntime], and [Containers.Running]
// lists the logs that package logrotate rotates.
//
//	client, err := cri.New(cri.Config{Endpoint: endpoint})
//	...
//	collector, err := gc.NewImageCollector(gc.ImageConfig{Store: crigc.NewImages(client, client)})
//	...
//	err = collector.Run(ctx)
//
// What never changes is asked for once: the log and the image mounts of a container, the end of
// one that has ended, the labels of an image. So a pass of any collector is two or three
// calls, and one for each container that is new.
//
// # Faults
//
// What the runtime does not have counts as removed. A container whose status cannot be read fails
// a whole list, since its images or logs would look unused. Links below the directory of logs are
// not followed, and a file system that does not answer costs a deadline and one goroutine.
//
// Tier: beta.
package crigc
