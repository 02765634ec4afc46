package podmeta

import "strings"

// SysctlName is a sysctl's name with dots between its parts. In a name with slashes,
// as below /proc/sys, a dot belongs to a part, such as eth0.1, and the two change
// places (sysctl.d(5)).
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

// SysctlNamespace is the kind of namespace that keeps a sysctl, a name with dots:
// ipc, net, uts or user; "" for one of the whole machine (documentation of
// Kubernetes, Using sysctls in a Kubernetes Cluster).
func SysctlNamespace(name string) string {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case begins("net."):
		return "net"
	case begins("user."):
		return "user"
	case name == "kernel.domainname":
		return "uts"
	case begins("kernel.shm"), begins("kernel.msg"), begins("fs.mqueue."), name == "kernel.sem":
		return "ipc"
	}
	return ""
}
