package spaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

// Own tells which namespaces a sandbox does not share with the host.
type Own struct {
	IPC, Network, UTS, User bool
}

// ipcSysctls are the sysctls of an IPC namespace, except those below fs.mqueue. The source is
// ipc/ipc_sysctl.c of Linux.
var ipcSysctls = []string{
	"kernel/auto_msgmni", "kernel/msg_next_id", "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/sem_next_id",
	"kernel/shm_next_id", "kernel/shm_rmid_forced", "kernel/shmall", "kernel/shmmax", "kernel/shmmni",
}

// maxSysctl is the maximum length of a sysctl's value, in bytes.
const maxSysctl = 4096

// CheckSysctls rejects sysctls that do not belong to one of the sandbox's own namespaces, with an
// InvalidArgument status that names the first one.
func CheckSysctls(sysctls map[string]string, own Own) error {
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		field := fmt.Sprintf("linux.sysctls[%.200q]", name)
		path, ok := sysctlPath(name)
		if !ok {
			return invalid(field, sysctls[name], "its name must be that of a file below /proc/sys, with dots")
		}
		if len(sysctls[name]) > maxSysctl || strings.ContainsAny(sysctls[name], "\x00\n") {
			return invalid(field, sysctls[name], fmt.Sprintf("must have at most %d bytes, none of them NUL or a new line", maxSysctl))
		}
		if why := own.refuse(path); why != "" {
			return invalid(field, sysctls[name], why)
		}
	}
	return nil
}

// refuse returns the reason why a sysctl does not belong to the sandbox's own namespaces. It
// returns "" if the sysctl does belong to them.
func (own Own) refuse(path string) string {
	var has bool
	var space string
	switch {
	case strings.HasPrefix(path, "net/"):
		has, space = own.Network, "network"
	case strings.HasPrefix(path, "fs/mqueue/") || slices.Contains(ipcSysctls, path):
		has, space = own.IPC, "IPC"
	case path == "kernel/domainname":
		has, space = own.UTS, "UTS"
	case path == "kernel/hostname":
		return "is set by the pod's hostname"
	default:
		return "belongs to no namespace of a pod, but to the whole machine"
	}
	if !has {
		return "needs a " + space + " namespace of the pod's own"
	}
	return ""
}

// sysctlPath returns the path of a sysctl below /proc/sys. As in sysctl(8), the first separator
// decides: net.ipv4.conf.eth0/1.forwarding belongs to interface eth0.1.
func sysctlPath(name string) (string, bool) {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." || strings.ContainsRune(element, 0) {
			return "", false
		}
	}
	return name, len(name) <= 255
}

// pingRange is the sysctl for the group IDs that may ping without capabilities.
const pingRange = "net.ipv4.ping_group_range"

// DefaultSysctls are the defaults for a sandbox with its own network: every user may listen on
// every port, and ping. They are containerd's. With a user namespace, the sysctl for ping is
// not set, since the group IDs of its range do not exist in that namespace.
func DefaultSysctls(own Own) map[string]string {
	if !own.Network {
		return nil
	}
	all := map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	if !own.User {
		all[pingRange] = "0 2147483647"
	}
	return all
}

func invalid(field string, value any, allowed string) error {
	return rpcerror.New(codes.InvalidArgument, fmt.Sprintf("%s %.200q: %s", field, fmt.Sprint(value), allowed))
}

func unable(field string, value any, reason string) error {
	return rpcerror.New(codes.FailedPrecondition, fmt.Sprintf("%s %.200q: %s", field, fmt.Sprint(value), reason))
}
