// Package devicemgr gives pods the devices of device plugins. A plugin is a program that speaks
// the device plugin API, v1beta1, through a unix socket, or a [Plugin] in this process. Package
// hostdevices has plugins for device nodes, USB devices and CDI devices of the machine.
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
// topology, whose decision [Admission.Commit] executes. Plugins allocate only then, after CPUs
// and memory have been found, so that a rejected pod leaves nothing behind. [Manager.Admit] does
// all of it at once.
//
// A pod that requests devices of a plugin that has gone away gets a [NotYetError] with the reason
// and a deadline. A pod with running containers keeps its devices, whatever happens to the plugin
// or the device. Later containers reuse the devices of init containers, also after a restart of
// the agent.
//
// # Order
//
// A device is marked as allocated before its plugin is called, and the allocation is stored
// before the pod gets it. The device is freed when the pod is released. No lock is held during a
// call to a plugin.
//
// Methods that wait for plugins are those with a ctx, and [Admission.Choose], Allocate and
// Commit, which use the ctx of [Manager.Begin]. Methods that wait for the store are Commit,
// Restore, registrations, and PreStart if it allocates again; they delay only writers of
// the same record. Release deletes its record in the background.
//
// # Faults
//
// Every call to a plugin has a deadline, and so has its first list. A plugin that hangs, sends
// too much or returns wrong data affects only the pods that request its resource: at most 8 MiB
// of lists a second are read, an unchanged list costs nothing, and lists are never stored.
//
// If the connection to a plugin is lost, the plugin is called again for five minutes, during
// which its capacity remains. A plugin that ends its list with an error is not called until it
// registers again. When another plugin takes over a resource, the end of the old one has no
// effect on it.
//
// After a crash at any moment, each pod has either its previous devices or the newly allocated
// ones. A damaged record blocks its resource while its pod runs, so that no device is allocated
// twice.
//
// # The podresources API
//
// [PodResources] serves the kubelet's podresources API, v1, on a unix socket: the devices, CPUs
// and memory of each pod.
//
//	s, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{
//		Socket:  "/var/lib/kubelet/pod-resources/kubelet.sock",
//		Pods:    pods,    // the active ones
//		Devices: devices, // a *devicemgr.Manager
//		CPUs:    cpus,    // may be nil, like the others
//	})
//	if err != nil {
//		return err
//	}
//	return s.Run(ctx)
//
// Clients for the kubelet work unchanged. Devices of a resource that are near the same NUMA nodes
// share one entry, as the API describes it; the kubelet creates an entry for each device, and
// several if the device is near several nodes. All lists are sorted.
//
// # The podresources API: faults
//
// Like the kubelet, it refuses more than 100 calls a second. No call waits for a plugin. A
// socket that an earlier process left is replaced. If the socket cannot be created, Run tries
// again with back-off.
//
// Tier: beta.
package devicemgr
