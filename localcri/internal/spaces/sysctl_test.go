package spaces

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSysctlsOutsideOfThePodAreRefused(t *testing.T) {
	all := Own{IPC: true, Network: true, UTS: true}
	for _, tt := range []struct {
		name, value string
		own         Own
		want        string // in the error; "" for none
	}{
		{"net.ipv4.ip_forward", "1", all, ""},
		{"net/ipv4/ip_forward", "1", all, ""},
		{"net.ipv4.conf.eth0/1.forwarding", "1", all, ""},
		{"kernel.sem", "1 2 3 4", all, ""},
		{"kernel.shm_rmid_forced", "1", all, ""},
		{"fs.mqueue.msg_max", "10", all, ""},
		{"kernel.domainname", "x", all, ""},
		{"net.ipv4.ip_forward", "1", Own{IPC: true, UTS: true}, "needs a network namespace"},
		{"kernel.sem", "1", Own{Network: true, UTS: true}, "needs a IPC namespace"},
		{"fs.mqueue.msg_max", "1", Own{}, "needs a IPC namespace"},
		{"kernel.domainname", "x", Own{}, "needs a UTS namespace"},
		{"kernel.hostname", "x", all, "set by the pod's hostname"},
		{"kernel.panic", "1", all, "whole machine"},
		{"vm.overcommit_memory", "1", all, "whole machine"},
		{"fs.file-max", "1", all, "whole machine"},
		{"fs.mqueue", "1", all, "whole machine"},
		{"kernel.shm_rmid_forced_", "1", all, "whole machine"},
		{"net/../kernel/panic", "1", all, "its name must be"},
		{"net.", "1", all, "its name must be"},
		{"", "1", all, "its name must be"},
		{"net.x\x00", "1", all, "its name must be"},
		{"net.." + "kernel", "1", all, "its name must be"},
		{"net." + strings.Repeat("x", 300), "1", all, "its name must be"},
		{"net.ipv4.ip_forward", "1\n2", all, "new line"},
		{"net.ipv4.ip_forward", strings.Repeat("1", 5000), all, "at most 4096 bytes"},
	} {
		err := CheckSysctls(map[string]string{tt.name: tt.value}, tt.own)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("CheckSysctls(%.40q=%.40q, %+v) = %.300v; want %q", tt.name, tt.value, tt.own, err, tt.want)
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Errorf("CheckSysctls(%.40q): code %v", tt.name, status.Code(err))
		}
	}
}

func FuzzSysctlsStayBelowTheirDirectories(f *testing.F) {
	for _, s := range []string{"net.ipv4.ip_forward", "net/../../x", "net.ipv4.conf.eth0/1.x", "fs.mqueue.x", "./.", "kernel/sem"} {
		f.Add(s)
	}
	own := Own{IPC: true, Network: true, UTS: true}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckSysctls(map[string]string{name: "1"}, own) != nil {
			return
		}
		path, ok := sysctlPath(name)
		if !ok || strings.HasPrefix(path, "/") || strings.Contains("/"+path+"/", "/../") || !strings.HasPrefix(path, "net/") &&
			!strings.HasPrefix(path, "kernel/") && !strings.HasPrefix(path, "fs/mqueue/") {
			t.Errorf("%q is allowed, and is %q", name, path)
		}
	})
}

func TestDefaultSysctls(t *testing.T) {
	if got := DefaultSysctls(Own{}); len(got) != 0 {
		t.Errorf("with the host's network: %v", got)
	}
	if got := DefaultSysctls(Own{Network: true}); len(got) != 2 {
		t.Errorf("with a network: %v", got)
	}
	if got := DefaultSysctls(Own{Network: true, User: true}); len(got) != 1 || got["net.ipv4.ip_unprivileged_port_start"] != "0" {
		t.Errorf("with users: %v", got)
	}
}
