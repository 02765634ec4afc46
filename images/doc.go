// Package images makes sure that an image is on the node before a container is created from it.
//
// [Manager.Ensure] follows the pull policy, pulls with the credentials of the pod's secrets, and
// backs off after failures. Concurrent requests for one image with the same credentials share a
// pull. The pull is cancelled when its last caller gives up.
//
//	m, err := images.New(images.Config{Service: client})
//	if err != nil {
//		return err
//	}
//	img, err := m.Ensure(ctx, images.Request{Pod: pod, Image: "registry/app:1", Policy: v1.PullIfNotPresent})
//
// The package also works without pods: with a nil [Request.Pod], an image is pulled with the
// node's own credentials, and no events are recorded.
//
// Pulls wait in a fair queue, with a limit for all and one for each registry. [Manager.Pulls] and
// [Manager.Waiting] report their progress and who waits for them.
//
// # Access to private images
//
// With Config.Records, a private image on the node is not available to every pod (KEP-2535).
// Records store the credentials that pulled the image. A pod with other credentials needs the
// registry's permission, which another pull requests. The files have the kubelet's format. A
// crash can at worst cause another pull. [Manager.Prune] removes the records of removed images.
//
// Errors are *Error: they contain the reason that Kubernetes shows and, during a back-off, the
// time of the next attempt.
//
// Tier: beta.
package images
