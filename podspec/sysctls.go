package podspec

import "github.com/nodewright/nodewright/podmeta"

// sysctls returns the node's defaults for the namespaces that the pod does not share with the
// node, overridden by the pod's own sysctls; nil if there are none.
func sysctls(in Input) map[string]string {
	spec := &in.Pod.Spec
	out := map[string]string{}
	// Those of a namespace that the pod shares with the node would change the
	// node itself.
	for name, value := range in.Node.DefaultSysctls {
		name = podmeta.SysctlName(name)
		own := false
		switch podmeta.SysctlNamespace(name) {
		case "ipc":
			own = !spec.HostIPC
		case "net", "uts": // a pod has the host's UTS namespace with its network
			own = !spec.HostNetwork
		// A sysctl of user namespaces is the pod's own only if it has such a
		// namespace.
		case "user":
			own = spec.HostUsers != nil && !*spec.HostUsers
		}
		if own {
			out[name] = value
		}
	}
	// Whether the pod may set these was decided when it was admitted.
	if sc := spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			out[podmeta.SysctlName(s.Name)] = s.Value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
