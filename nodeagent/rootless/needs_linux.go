package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/safefile"
)

// leastIDs is the number of user IDs that images rely on: all of 16 bits. One of them is the user's
// own.
const leastIDs = 65535

// maxFile limits the files that this package reads, in bytes.
const maxFile = 1 << 20

// cgroupMount is the mount point of cgroup v2.
const cgroupMount = "/sys/fs/cgroup"

// Leaf is the name of the cgroup of the agent and the holder, below the delegated cgroup. It is
// DelegateSubgroup= of a unit of systemd.
const Leaf = "agent"

// programs are the required programs, and the packages that have them in Debian and most other
// distributions.
var programs = [][2]string{
	{"unshare", "util-linux"}, {"nsenter", "util-linux"}, {"setsid", "util-linux"}, {"mount", "mount, or util-linux"},
	{"newuidmap", "uidmap, or shadow-utils"}, {"newgidmap", "uidmap, or shadow-utils"}, {"pasta", "passt"},
}

// sysctls are kernel parameters that forbid user namespaces if they have the given value.
var sysctls = [][3]string{
	{"user/max_user_namespaces", "0", "user.max_user_namespaces=10000"},
	{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
}

// checkPorts returns an error unless ports are a list such as 8080,30000-30100.
func checkPorts(ports string) error {
	if ports == "" {
		return nil
	}
	for one := range strings.SplitSeq(ports, ",") {
		first, last, ok := strings.Cut(one, "-")
		if !ok {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || a == 0 || a > b {
			return fmt.Errorf("forwarded ports %q: %q: want a list of ports from 1 to 65535 and ranges, such as 8080,30000-30100", ports, one)
		}
	}
	return nil
}

// lacks returns an error with everything that the machine lacks, and with a remedy for each. base is
// the cgroup for pods; errBase is the reason why there is none.
func lacks(uid int, errBase error) error {
	var errs []error
	missing := func(format string, args ...any) { errs = append(errs, fmt.Errorf("missing: "+format, args...)) }
	for _, p := range programs {
		if _, err := exec.LookPath(p[0]); err != nil {
			missing("program %s; install %s", p[0], p[1])
		}
	}
	for _, option := range [][3]string{{"unshare", "--map-auto", "2.38"}, {"nsenter", "--wdns", "2.38"}} {
		if help, err := exec.Command(option[0], "--help").Output(); err == nil && !strings.Contains(string(help), option[1]) {
			missing("option %s of %s; install util-linux %s or later", option[1], option[0], option[2])
		}
	}
	name := ""
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		b, _ := safefile.ReadFile(file, maxFile)
		if n := firstRange(string(b), name, uid); n < leastIDs {
			missing("range of %d IDs or more for user %s in %s, whose first range has %d; run as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s, with IDs that no other user has",
				leastIDs, name, file, n, name)
		}
	}
	for _, s := range sysctls {
		if b, err := safefile.ReadFile("/proc/sys/"+s[0], maxFile); err == nil && strings.TrimSpace(string(b)) == s[1] {
			missing("permission for user namespaces; run as root: sysctl -w %s", s[2])
		}
	}
	if err := unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK); err != nil {
		missing("access to /dev/net/tun (%v); run as root: modprobe tun, chmod 0666 /dev/net/tun", err)
	}
	if errBase != nil {
		missing("%w", errBase)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("user %d is not root:\n%w", uid, errors.Join(errs...))
}

// firstRange returns the number of IDs in the user's first range in a file such as /etc/subuid, which
// is the range that unshare uses (subuid(5)).
func firstRange(text, name string, uid int) uint64 {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] == "" || f[0] != name && f[0] != strconv.Itoa(uid) {
			continue
		}
		n, _ := strconv.ParseUint(f[2], 10, 32)
		return n
	}
	return 0
}

// baseOf returns the delegated cgroup of a process in the cgroup own.
func baseOf(own string) string {
	if path.Base(own) == Leaf {
		return path.Dir(own)
	}
	return own
}

// cgroupOf returns the v2 cgroup of a process.
func cgroupOf(ctx context.Context, pid int) (string, error) {
	all, err := kernel.This.CgroupsOf(ctx, strconv.Itoa(pid))
	if err != nil {
		return "", err
	}
	if all[""] == "" || strings.HasPrefix(all[""], "/..") {
		return "", fmt.Errorf("cgroup v2 of process %d below %s", pid, cgroupMount)
	}
	return all[""], nil
}

// delegated returns the cgroup that was delegated to the user, in which this process is.
func delegated(ctx context.Context) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", fmt.Errorf("cgroup v2 at %s; boot with systemd.unified_cgroup_hierarchy=1", cgroupMount)
	}
	own, err := cgroupOf(ctx, os.Getpid())
	if err != nil {
		return "", err
	}
	base := baseOf(own)
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := unix.Access(path.Join(cgroupMount, base, file), unix.W_OK); err != nil {
			return "", fmt.Errorf("delegated cgroup: user cannot write to %s (%w); start the agent as a user service with Delegate=yes, or by: systemd-run --user --scope -p Delegate=yes",
				path.Join(cgroupMount, base, file), err)
		}
	}
	return base, nil
}

// used are the controllers that limits of pods use, and the limits that have no effect without one.
var used = [][2]string{
	{"cpu", "CPU requests and limits"}, {"cpuset", "exclusive CPUs"}, {"io", "statistics of disk use"}, {"memory", "memory limits"}, {"pids", "limits of processes"},
}

// Limits returns a sentence for each thing that does not work in the namespaces of this process. ports
// is the Config.Ports of its Enter.
func Limits(ctx context.Context, ports string) []string {
	var out []string
	b, _ := safefile.ReadFile(path.Join(cgroupMount, "cgroup.controllers"), maxFile)
	out = append(out, missingControllers(string(b))...)
	if ports == "" && !recent(ctx) {
		out = append(out, "pasta is older than 2024_10_30 and opens no host ports of pods on the machine; name the ports with --forward-ports")
	}
	return append(out, "host ports below net.ipv4.ip_unprivileged_port_start of the machine (1024) are reachable only from pods")
}

// missingControllers returns a sentence for each used controller that is not in the content of
// cgroup.controllers.
func missingControllers(text string) []string {
	var out []string
	for _, c := range used {
		if !slices.Contains(strings.Fields(text), c[0]) {
			out = append(out, fmt.Sprintf("cgroup controller %s is not delegated: no %s", c[0], c[1]))
		}
	}
	return out
}

// writeFile writes a value to a file of a cgroup. It does not create the file.
func writeFile(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0) //nolint:forbidigo // of the kernel
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
