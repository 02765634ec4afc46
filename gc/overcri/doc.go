// Package overcri lets the collectors below gc work on a CRI runtime: [Images] is
// imagegc's Store, [Containers] is containergc's Runtime, and [Containers.Running] lists
// the logs for logrotate.
//
//	client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil {
//		return err
//	}
//	images := overcri.NewImages(client, client)
//	m, err := imagegc.New(imagegc.Config{Store: images})
//
// What never changes is asked for once: the log and the image mounts of a
// container, the end of one that has ended, the labels of an image. So a pass
// of any collector is two or three calls, and one for each container that is
// new.
//
// Tier: beta.
package overcri
