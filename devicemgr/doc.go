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
// It needs a [Store] and nothing else. Package pluginmgr can register further plugins with it
// ([Manager.Registrar]), and [PodResources] reports allocations to other programs.
//
// # Admission
//
// An [Admission] chooses devices without allocating them: it is a hint provider for package
// topology, whose decision [Admission.Commit] executes. Plugins allocate only then, after
// CPUs and memory have been found, so a rejected pod leaves nothing behind. [Manager.Admit]
// does all of it at once.
//
// A pod that requests devices of a plugin that has gone away gets a [NotYetError] with the
// reason and a deadline. A pod with running containers keeps its devices, whatever happens
// to the plugin or the device. Devices of init containers are reused by later containers,
// also after a restart of the agent.
//
// # Order
//
// A device is marked as allocated before its plugin is called, and the allocation is stored
// before the pod gets it. It is freed when the pod is released. Only methods with a ctx wait
// for plugins, and [Admission.Choose], Allocate and Commit, which use that of
// [Manager.Begin]; no lock is held during a call of a plugin. Commit, Restore, Expect,
// registrations, and PreStart when it allocates again, wait for the store; they delay only
// writers of the same record. Release deletes its record in the background.
//
// # Faults
//
// Every call to a plugin has a deadline, and so has its first list. A plugin that hangs,
// floods or lies affects only the pods that request its resource: lists are read at 8 MiB a
// second at most, an unchanged list costs nothing, and lists are never stored. A plugin whose
// connection is lost is called again for Config.Grace, during which its capacity remains; one
// that ends its list with an error is not called until it registers again. When another
// plugin takes over a resource, the end of the old one does not affect it. After a crash at
// any moment, each pod has either its previous devices or the newly allocated ones. A damaged
// record blocks its resource while its pod runs, so that no device is allocated twice.
//
// # The podresources API
//
// [PodResources] serves the kubelet's podresources API, v1, on a unix socket: the
// devices, CPUs and memory of each pod.
//
//	s, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{
//		Socket:  "/var/lib/kubelet/pod-resources/kubelet.sock",
//		Pods:    pods,    // those that are active
//		Devices: devices, // a *devicemgr.Manager
//		CPUs:    cpus,    // may be nil, and so may the others
//	})
//	if err != nil {
//		return err
//	}
//	return s.Run(ctx)
//
// Clients made for the kubelet work unchanged. Devices of a resource that are
// near the same NUMA nodes are in one entry, as the API has it; the kubelet
// makes an entry for each, and several for one that is near several nodes. All
// lists are sorted.
//
// # The podresources API: faults
//
// Calls beyond PodResourcesConfig.QPS are refused, as by the kubelet. No call waits
// for a plugin. A socket that was left behind is replaced. If the socket cannot be
// created, Run tries again with back-off.
//
// Tier: beta.
package devicemgr
