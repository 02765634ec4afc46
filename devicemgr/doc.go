// Package devicemgr gives pods the devices of device plugins: programs that
// speak the device plugin API, v1beta1, through unix sockets, and anything in
// this process that is a [Plugin].
//
//	m, err := devicemgr.New(devicemgr.Config{SocketDir: "/var/lib/kubelet/device-plugins", Store: store})
//	if err != nil {
//		return err
//	}
//	err = m.Restore(running) // which containers run; before Run
//	go m.Run(ctx)
//	...
//	switch err := m.Admit(ctx, pod); {
//	case errors.As(err, &notYet): // wait: for a change of notYet.Resource, or notYet.Until
//	case err != nil:              // reject
//	}
//	attachment, err := m.Attachment(pod, "main") // before the container is created
//	err = m.PreStart(ctx, pod, "main")           // before it is started
//	m.Release(pod.UID)                           // when all of its containers have ended
//
// It needs a [Store], and nothing else. Package pluginmgr can bring it further
// plugins ([Manager.Registrar]), and devicemgr/podresources informs others who
// has what.
//
// # Admission
//
// An [Admission] chooses devices and takes nothing: it is a provider for
// package topology, whose decision [Admission.Commit] makes true. Plugins
// allocate then, when CPUs and memory are found, and a pod that is rejected
// leaves nothing behind. [Manager.Admit] does all of it at once.
//
// A pod that asks for devices whose plugin was there, and is away, is told to
// wait with a reason and until when ([NotYetError]). A pod of which something
// runs keeps what it has, whatever became of the plugin or the device. Init
// containers leave their devices to those after them, also over a restart.
//
// # Order
//
// A device is taken before its plugin hears of it, and stored before the pod
// does. It is given back when the pod is released. Methods never wait for
// plugins, except those with a ctx, and [Admission.Choose], Allocate and
// Commit, which have that of [Manager.Begin]; no lock is held over a call of a
// plugin. Commit, Restore, Expect, registrations, and PreStart where it allocates
// anew, wait for the store; nothing else does, and nobody waits for them but who
// writes the same record. Release deletes its record in the background.
//
// # Faults
//
// Every call to a plugin has a deadline, and so has its first list. A plugin
// that hangs, floods or lies costs the pods that ask for its resource, and no
// others: lists are read at 8 MiB a second, an equal list costs nothing, and
// none is ever stored. One that goes away is tried again for Config.Grace, for
// which its capacity stays; one that ends its list with an error of its own is
// asked no more until it registers again. A plugin that takes over a resource is
// not harmed by the end of the old one. A crash at any moment leaves each pod with what
// it had, or with what it was given. A record that is damaged blocks the
// resource as long as its pod runs, rather than have a device given twice.
//
// Tier: beta.
package devicemgr
