// Package podresources serves the kubelet's podresources API, v1, on a unix socket: the
// devices, CPUs and memory of each pod.
//
//	s, err := podresources.New(podresources.Config{
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
// # Faults
//
// Calls beyond Config.QPS are refused, as by the kubelet. Nothing waits for a
// plugin. A socket that was left behind is replaced; one that cannot be made is
// tried again, with back-off, for as long as Run runs.
//
// Tier: beta.
package podresources
