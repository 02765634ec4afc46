package podmeta

import "strings"

// SysctlName returns a sysctl's name with dots as separators. In a name with slashes as
// separators, as below /proc/sys, dots belong to the parts (eth0.1) and become slashes
// (sysctl.d(5)).
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

// SysctlNamespace returns the kind of namespace to which a sysctl belongs: ipc, net, uts or user.
// It returns "" for a sysctl of the whole machine. name has dots as separators. The list is that
// of Kubernetes' page "Using sysctls in a Kubernetes Cluster".
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
