// Package images makes sure that an image is on the node before a container is
// made of it.
//
// [Manager.Ensure] follows the pull policy, pulls with the credentials of the
// pod's secrets, and backs off from what fails. Pulls of one image with the
// same credentials that are wanted at the same time are one pull; it goes on
// for as long as anybody waits for it, and is cancelled when nobody does.
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
// Pulls wait in a fair queue, bounded in all and by registry. [Manager.Pulls]
// and [Manager.Waiting] tell how far they are, and who waits for them.
//
// # Whose images they are
//
// With Config.Records a private image is not for every pod just because it is
// there: it is on record which credentials it was pulled with, and who comes
// with others has to show them to the registry. The files are the kubelet's. A
// crash leaves at worst an image that is to be pulled once more. When images
// are removed, [Manager.Prune] drops what was on record of them.
//
// Errors are *Error: they bear the reason that Kubernetes shows for them, and,
// where the pull is being held back, the time until when.
//
// Tier: beta.
package images
