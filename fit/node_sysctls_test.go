package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSysctls(t *testing.T) {
	allowed := []string{"net.core.somaxconn", "kernel.shm*", "net/ipv4/conf/eno2.100/*"}
	for name, c := range map[string]struct {
		set          []string
		network, ipc bool // of the host
		want         string
	}{
		"nothing":                     {},
		"safe":                        {set: []string{"kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies"}},
		"safe, with slashes":          {set: []string{"net/ipv4/tcp_syncookies"}},
		"unsafe":                      {set: []string{"net.ipv4.tcp_syncookies", "kernel.msgmax"}, want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"unsafe, with slashes":        {set: []string{"kernel/msgmax"}, want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		"allowed":                     {set: []string{"net.core.somaxconn"}},
		"more than allowed":           {set: []string{"net.core.somaxconn2"}, want: `forbidden sysctl: "net.core.somaxconn2" not allowlisted`},
		"allowed by prefix":           {set: []string{"kernel.shmmax"}},
		"a part with dots":            {set: []string{"net/ipv4/conf/eno2.100/rp_filter"}},
		"of the host's network":       {set: []string{"net.ipv4.tcp_syncookies"}, network: true, want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled`},
		"of the host's memory":        {set: []string{"kernel.shm_rmid_forced"}, ipc: true, want: `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled`},
		"the network's, with its IPC": {set: []string{"net.ipv4.tcp_syncookies"}, ipc: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{HostNetwork: c.network, HostIPC: c.ipc, SecurityContext: &v1.PodSecurityContext{}}}
			for _, s := range c.set {
				pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: s, Value: "1"})
			}
			r := (&Node{UnsafeSysctls: allowed}).sysctls(pod, nil)
			if got := ""; r != nil {
				if got = r.Message; r.Reason != "SysctlForbidden" || got != c.want {
					t.Errorf("%+v, want %q", r, c.want)
				}
			} else if c.want != "" {
				t.Errorf("taken, want %q", c.want)
			}
		})
	}
}
