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
// Errors are *Error: they bear the reason that Kubernetes shows for them, and,
// where the pull is being held back, the time until when.
package images
