package fit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// safeSysctls are the sysctls that every pod may set. The kernel has them per namespace, so they
// do not affect other pods (Kubernetes' page "Using sysctls in a Kubernetes Cluster"). Kernels
// that do not have them per namespace reject them.
var safeSysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

// sysctls rejects pods with sysctls that are neither safe nor allowed. A sysctl of a namespace
// that the pod shares with the host is rejected even if it is safe, since it would change the
// host.
func (p *Node) sysctls(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := podmeta.SysctlName(s.Name)
		if slices.Contains(safeSysctls, name) || slices.ContainsFunc(p.UnsafeSysctls, func(allowed string) bool { return allowsSysctl(allowed, name) }) {
			if of := hostNamespace(pod, name); of != "" {
				return &Rejection{Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, of), Final: true}
			}
			continue
		}
		return &Rejection{Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %q not allowlisted", name), Final: true}
	}
	return nil
}

// allowsSysctl reports whether a configured entry, such as net.core.somaxconn or kernel.shm*,
// matches a sysctl.
func allowsSysctl(allowed, name string) bool {
	allowed = podmeta.SysctlName(allowed)
	if prefix, ok := strings.CutSuffix(allowed, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return allowed == name
}

// hostNamespace returns the kind of the sysctl's namespace if the pod uses the host's. It returns
// "" if the pod has its own.
func hostNamespace(pod *v1.Pod, name string) string {
	switch of := podmeta.SysctlNamespace(name); {
	case of == "net" && pod.Spec.HostNetwork, of == "ipc" && pod.Spec.HostIPC:
		return of
	}
	return ""
}
