// Package dra prepares the devices of pods' ResourceClaims (dynamic resource
// allocation, KEP-4381): it calls the drivers on this node to prepare the allocated
// devices before the containers start, returns the CDI devices of each container,
// and calls the drivers to undo it when the last pod of a claim has ended.
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
// It needs a [Store], and [Claims] to look up claims. Drivers are registered by
// [Manager.Registrar], which package pluginmgr can use for the type DRAPlugin, or from this
// process by [Manager.Offer].
//
// # Order
//
// The use of a claim by a pod is stored before its driver is called, and the driver's answer
// is stored before the pod gets it. A claim is prepared once, however many pods share it, and
// unprepared once, with the last of them. The two never overlap for a claim and a driver,
// even if the caller has given up: calls belong to the manager, and callers wait for them.
// One call contains all claims of a pod for one driver; different drivers are called in
// parallel.
//
// [Manager.Prepare] of a pod whose claims are prepared calls no driver. Methods without a ctx
// never wait, and no lock is held during a call or a write.
//
// # Faults
//
// Every call has a deadline. A driver that hangs, lies or is away affects only the pods that
// use it. The record of a claim is one small file. Claims remain prepared over a restart of
// the agent, unless the machine has rebooted. A damaged record is rebuilt from the claim and
// the running pods that it is reserved for, and its driver is called again, which drivers
// have to expect. [Manager.Retain] finds pods that are gone; their claims are unprepared in
// the background, with retries until that succeeds.
//
// Tier: beta.
package dra
