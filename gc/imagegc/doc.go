// Package imagegc keeps the disk of a node's images below a watermark: it
// removes those that went unused the longest, and none that anybody needs.
//
//	m, err := imagegc.New(imagegc.Config{Store: store, Desired: pods.Images})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)                        // every 5 minutes
//	freed, err := m.Reclaim(ctx, 1<<30)  // now, for an eviction manager
//	report, err := m.Explain(ctx)        // what would go, and why the rest stays
//
// It needs a [Store]: package overcri has one over a CRI client. [Decide] and
// [Want] are the decision, without any of it.
//
// # What stays
//
// An image that has a container, be it a dead one, or is mounted; that the
// runtime, Config.Pins or Config.PinLabels pin; that a stored pod names
// (Config.Desired); that is younger than Policy.MinAge; and whatever a pod that
// is being started holds. [Report] reports for each image which of these it is.
//
// # Pods that start
//
// An image that was just pulled has no container yet. Who starts a pod holds
// the image before it looks for it, and lets go when its container is made:
//
//	h := m.Hold()
//	defer h.Release()
//	look, err := h.Name(ctx, image) // waits for a removal under way
//	if err != nil {
//		return err
//	}
//	for intact := false; !intact; { // again, if it went under another name
//		img, err := images.Ensure(ctx, request)
//		if err != nil {
//			return err
//		}
//		if intact, err = look.Got(ctx, img.Ref); err != nil {
//			return err
//		}
//	}
//	// create the container
//
// With that no interleaving removes an image between Name and Release: see
// package hold. Without it Policy.MinAge alone protects a fresh pull, as in the
// kubelet.
//
// # How much goes
//
// After each removal the disk is looked at again, and the pass ends when as
// much is free as was wanted: the sizes that a runtime reports count shared
// layers for each image and mostly leave out what the image takes unpacked.
//
// # Faults
//
// A list that cannot be had ends the pass; an image that cannot be removed is
// passed over and reported. Every call has a deadline. With Config.Memory the
// history outlasts a restart: an image's age is then that since it was seen
// first and not since the restart. A history that cannot be read begins anew.
//
// Tier: beta.
package imagegc
