// Package dra prepares the devices of pods' ResourceClaims (dynamic resource allocation,
// KEP-4381). It calls the drivers on this node to prepare the allocated devices before the
// containers start, returns the CDI devices of each container, and calls the drivers to unprepare
// a claim when its last pod has ended.
//
//	m, err := dra.New(dra.Config{Store: store, Claims: claims})
//	if err != nil {
//		return err
//	}
//	err = m.Restore(running) // which containers run; before Run
//	go m.Run(ctx)
//	...
//	switch err := m.Prepare(ctx, pod); { // before the sandbox is created
//	case errors.As(err, &notYet): // the driver is missing: try again when Subscribe reports, or at notYet.Until
//	case err != nil:              // try again
//	}
//	cdi, err := m.Attachment(pod, "main") // before the container is created
//	err = m.Unprepare(ctx, pod.UID)       // when all of its containers have ended
//
// It needs a [Store], and [Claims] to look up claims. [Manager.Registrar] registers drivers that
// package pluginmgr discovers (type DRAPlugin). [Manager.Offer] adds a driver of the same
// process.
//
// # Order
//
// The use of a claim by a pod is stored before its driver is called, and the driver's answer is
// stored before the pod gets it. A claim is prepared once, however many pods share it, and
// unprepared once, with the last of them. For a claim and a driver, the two never overlap, even
// if the caller has given up: calls belong to the manager, and callers wait for them. One call
// contains all claims of a pod for one driver; different drivers are called in parallel.
//
// If the claims of a pod are prepared, [Manager.Prepare] calls no driver. Methods without a ctx
// never wait. No lock is held during a call or a write.
//
// # Faults
//
// Every call has a deadline. A driver that hangs, returns wrong answers or is missing affects
// only the pods that use it. The record of a claim is one small file. Claims remain prepared over
// a restart of the agent, unless the machine has rebooted. A damaged record is rebuilt from the
// claim and the running pods that it is reserved for. Its driver is called again, which drivers
// must support. [Manager.Retain] finds pods that are gone; their claims are unprepared in the
// background, with retries until that succeeds.
//
// Tier: beta.
package dra
