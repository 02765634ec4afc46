// Package imagegc keeps the usage of a node's image disk below a threshold: it removes the
// images that have been unused the longest, and none that is needed.
//
//	m, err := imagegc.New(imagegc.Config{Store: store, Desired: pods.Images})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)                        // every 5 minutes
//	freed, err := m.Reclaim(ctx, 1<<30)  // now, for an eviction manager
//	report, err := m.Explain(ctx)        // what would go, and why the rest stays
//
// It needs a [Store]: package overcri implements one with a CRI client. [Decide] and [Want]
// are the pure decision.
//
// # Images that are kept
//
// Images of containers, dead ones included, and mounted images; images that are pinned by
// the runtime, Config.Pins or Config.PinLabels; images of desired pods (Config.Desired);
// images younger than Policy.MinAge; and images held by pods that are being started. [Report]
// contains the reason for each image.
//
// # Pods that start
//
// A newly pulled image has no container yet. To start a pod, hold the image before looking
// for it, and release it once its container is created:
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
// No interleaving can then remove the image between Name and Release: see package hold.
// Without that, a new image is protected by Policy.MinAge alone, as in the kubelet.
//
// # Amount
//
// The usage of the disk is read after each removal, and the pass ends when enough is free.
// The sizes that runtimes report are no help: they count shared layers for each image, and
// mostly leave out the unpacked size.
//
// # Faults
//
// A failed list ends the pass; an image that cannot be removed is skipped and reported. Every
// call has a deadline. With Config.Memory the history survives a restart: the age of an
// image counts from when it was first seen, not from the restart. A history that cannot be
// read is discarded.
//
// Tier: beta.
package imagegc
