package podmeta

import "testing"

func TestSysctls(t *testing.T) {
	for name, want := range map[string][2]string{
		"net.core.somaxconn": {"net.core.somaxconn", "net"}, "net/ipv4/conf/eno2.100/rp_filter": {"net.ipv4.conf.eno2/100.rp_filter", "net"},
		"kernel.shm_rmid_forced": {"kernel.shm_rmid_forced", "ipc"}, "kernel/msgmax": {"kernel.msgmax", "ipc"}, "fs.mqueue.msg_max": {"fs.mqueue.msg_max", "ipc"},
		"kernel.sem": {"kernel.sem", "ipc"}, "kernel.sem_next_id": {"kernel.sem_next_id", ""}, "kernel.domainname": {"kernel.domainname", "uts"},
		"user.max_user_namespaces": {"user.max_user_namespaces", "user"}, "vm.swappiness": {"vm.swappiness", ""}, "kernel": {"kernel", ""}, "": {"", ""},
	} {
		dotted := SysctlName(name)
		if got := [2]string{dotted, SysctlNamespace(dotted)}; got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
