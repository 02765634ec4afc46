// Package dra gives pods the devices of their ResourceClaims (dynamic resource
// allocation, KEP-4381): it has the drivers on this node prepare what was allocated,
// before the containers start, names the CDI devices of each container, and has the
// drivers undo it when the last pod has ended.
//
//	m, err := dra.New(dra.Config{Store: store, Claims: claims})
//	if err != nil {
//		return err
//	}
//	err = m.Restore(running) // which containers run; before Run
//	go m.Run(ctx)
//	...
//	switch err := m.Prepare(ctx, pod); { // before the sandbox is made
//	case errors.As(err, &notYet): // the driver has not come: try again when Subscribe reports, or at notYet.Until
//	case err != nil:              // try again
//	}
//	cdi, err := m.Attachment(pod, "main") // before the container is created
//	err = m.Unprepare(ctx, pod.UID)       // when all of its containers have ended
//
// It needs a [Store], and [Claims] to look claims up in. Drivers come through
// [Manager.Registrar], which package pluginmgr can use for the type DRAPlugin,
// or from this process ([Manager.Offer]).
//
// # Order
//
// That a pod uses a claim is stored before a driver hears of it, and what the
// driver answered before the pod does. A claim is prepared once, however many
// pods share it, and undone once, with the last of them; the two never overlap
// for one claim and driver, also if the caller has gone: calls are the
// manager's own, and callers wait for them. One call has all claims of a pod
// for one driver, and the drivers of a pod are called side by side.
//
// [Manager.Prepare] of a pod that has everything is quick: it asks nobody.
// Methods without a ctx never wait, and no lock is held over a call or a write.
//
// # Faults
//
// Every call has a deadline. A driver that hangs, lies or is away costs the
// pods that want something of it, and no others. The record of a claim is one
// small file. After a restart what was prepared is so, unless the machine was
// booted since. A record that is damaged is made anew from the claim, with all
// the running pods that it is reserved for, and its driver is asked again, as
// drivers have to expect. Pods that are gone are found by [Manager.Retain]; what
// they used is undone in the background, as often as it takes.
//
// Tier: beta.
package dra
