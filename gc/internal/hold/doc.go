// Package hold resolves the race between users and collectors of an item, for example between a
// starting pod and a collector that has just found the pod's image unused.
//
// A user opens a hold before it looks up the item, and releases it when collectors can see the
// use:
//
//	h := table.Open()
//	defer h.Release()
//	if _, err := h.Add(ctx, "registry/app:1"); err != nil {
//		return err
//	}
//	// look for it, fetch it, make a container of it
//
// A collector begins a pass before it reads its facts, and takes each item before it removes it:
//
//	pass := table.Begin()
//	defer pass.End()
//	// read what is there and what is in use, decide
//	if done, ok := pass.Take("registry/app:1"); ok {
//		// remove it
//		done()
//	}
//
// # What it keeps true
//
// Take fails for items that are held, or were held at any time since the pass began: the facts
// may not show such a use. Add waits while the item is being removed. So nothing is removed
// between Add and Release, and a removed item was unused from before the facts were read until
// it was gone.
//
// An item may get another name while it is held: an image has its ID only after the pull. For
// such a name, Add reports whether the item was removed since the hold was opened; then it must
// be fetched again.
//
// All methods may be called from any goroutine. Memory is limited by the held items, and by
// those that were released or removed since the oldest open pass or hold.
package hold
