// Package images makes sure that an image is on the node before a container is created from it.
//
// [Manager.Ensure] follows the pull policy, pulls with the credentials of the pod's
// secrets, and backs off after failures. Concurrent requests for one image with the same
// credentials share a pull, which is cancelled when the last of them is.
//
//	m, err := images.New(images.Config{Service: client})
//	if err != nil {
//		return err
//	}
//	img, err := m.Ensure(ctx, images.Request{Pod: pod, Image: "registry/app:1", Policy: v1.PullIfNotPresent})
//
// It works without pods: with a nil [Request.Pod] an image is pulled with the
// credentials of the node alone, and there are no events.
//
// Pulls wait in a fair queue, with a limit for all and one for each registry.
// [Manager.Pulls] and [Manager.Waiting] report their progress and who waits for them.
//
// # Access to private images
//
// With Config.Records, a private image that is present is not available to every pod
// (KEP-2535): the credentials that pulled it are on record, and a pod with other
// credentials has to be authorized by the registry. The files are the kubelet's. The worst
// effect of a crash is another pull. [Manager.Prune] removes the records of removed images.
//
// Errors are *Error: they contain the reason that Kubernetes shows and, during a back-off,
// the time of the next attempt.
//
// Tier: beta.
package images
