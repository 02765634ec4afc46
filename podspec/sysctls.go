package podspec

import "github.com/nodewright/nodewright/podmeta"

// sysctls are the node's defaults for what is the pod's own, and over them what
// the pod asks for; nil if there are none.
func sysctls(in Input) map[string]string {
	spec := &in.Pod.Spec
	out := map[string]string{}
	for name, value := range in.Node.DefaultSysctls {
		name = podmeta.SysctlName(name)
		own := false
		switch podmeta.SysctlNamespace(name) {
		case "ipc":
			own = !spec.HostIPC
		case "net", "uts": // a pod has the host's UTS namespace with its network
			own = !spec.HostNetwork
		case "user":
			own = spec.HostUsers != nil && !*spec.HostUsers
		}
		if own {
			out[name] = value
		}
	}
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
