// Package hold settles who may have a thing that one side is about to use and
// the other about to remove: an image that a pod is being started from and that
// the collector found unused a moment ago.
//
// The user opens a hold before it looks whether the thing is there, and lets go
// when its use can be seen in the facts that collectors read:
//
//	h := table.Open()
//	defer h.Release()
//	if _, err := h.Add(ctx, "registry/app:1"); err != nil {
//		return err
//	}
//	// look for it, fetch it, make a container of it
//
// The collector begins a pass before it reads its facts, and takes each thing
// before it removes it:
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
// Take fails for what is held, and for what was held at any time since the pass
// began: its user may have shown up after the facts were read. Add waits while
// the thing is being removed. So between Add and Release nothing is removed,
// and what is removed was unused from before the facts were read until it was
// gone.
//
// A thing may get a further name while it is held, as an image has its ID only
// after the pull. Add reports for such a name whether it was removed since the
// hold was opened, under the other name, so that it has to be fetched anew.
//
// All methods may be called from any goroutine. Memory is bounded by what is
// held, and by what was let go or removed since the oldest pass or hold that
// is still open.
package hold
