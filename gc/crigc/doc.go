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
// Constant data is read once: the log path and image mounts of a container, and its end time.
// So a pass of any collector needs two or three calls, plus one for each new container.
//
// # Faults
//
// Removing a missing item is a success. If the status of a container cannot be read, the whole
// list fails, since its images or logs would look unused. Links below the directory of logs are
// not followed. A hung file system costs a timeout and one goroutine.
//
// Tier: beta.
package crigc
