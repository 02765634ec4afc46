package podspec

import "github.com/nodewright/nodewright/podmeta"

// sysctls returns the pod's sysctls and, for the namespaces that the pod does not share with the
// node, those defaults of the node that the pod does not set. It returns nil if there are none.
func sysctls(in Input) map[string]string {
	spec := &in.Pod.Spec
	out := map[string]string{}
	// A sysctl of a namespace that the pod shares with the node would change the node.
	for name, value := range in.Node.DefaultSysctls {
		name = podmeta.SysctlName(name)
		own := false
		switch podmeta.SysctlNamespace(name) {
		case "ipc":
			own = !spec.HostIPC
		case "net", "uts": // with the host's network, a pod also has the host's UTS namespace
			own = !spec.HostNetwork
		// Sysctls of user namespaces apply only to a pod that has its own.
		case "user":
			own = spec.HostUsers != nil && !*spec.HostUsers
		}
		if own {
			out[name] = value
		}
	}
	// Admission has already decided whether the pod may set these.
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
