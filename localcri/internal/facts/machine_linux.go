package facts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// maxSmall limits the bytes of a small file of the kernel, and maxProfiles the bytes of the list
// of AppArmor profiles.
const (
	maxSmall    = 64 << 10
	maxProfiles = 4 << 20
)

// ReadKernel returns the version of the running kernel.
func ReadKernel() (Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{}, os.NewSyscallError("uname", err)
	}
	return ParseKernel(unix.ByteSliceToString(u.Release[:]))
}

// Machine returns the abilities of the machine, without device nodes (see [Facts.HostDevices]).
// If the OCI runtime does not support seccomp, the caller clears Machine.Seccomp.
func (f *Facts) Machine() ocispec.Machine {
	f.once.Do(func() { f.machine = f.lasting() })
	m := f.machine
	m.HugePages, m.Capabilities = slices.Clone(m.HugePages), slices.Clone(m.Capabilities)
	// Profiles are loaded and unloaded at any time.
	if m.AppArmor {
		m.AppArmorProfiles = f.appArmorProfiles()
		if slices.Contains(m.AppArmorProfiles, f.cfg.AppArmorDefault) {
			m.AppArmorDefault = f.cfg.AppArmorDefault
		}
	}
	return m
}

func (f *Facts) lasting() ocispec.Machine {
	v2, _ := f.kernel.V2(context.Background())
	swap, _ := f.kernel.LimitsSwap(context.Background())
	m := ocispec.Machine{
		CgroupV2:          v2,
		Swap:              swap,
		Systemd:           f.cfg.Systemd,
		HugePages:         f.hugePages(),
		Capabilities:      f.capabilities(),
		AppArmor:          strings.HasPrefix(f.text(f.sys("module/apparmor/parameters/enabled")), "Y"),
		LeastOOMScoreAdj:  f.leastOOMScoreAdj(),
		RecursiveReadOnly: hasMountSetattr(),
		UserNamespace:     userns.RunningInUserNS(),
	}
	if v2 {
		m.Controllers = strings.Fields(f.text(f.sys("fs/cgroup/cgroup.controllers")))
		m.HugePagesLimited = slices.Contains(m.Controllers, "hugetlb")
	} else {
		m.HugePagesLimited = f.has(f.sys("fs/cgroup/hugetlb/tasks"))
	}
	if f.has(f.proc("sys/kernel/seccomp/actions_avail")) {
		m.Seccomp = f.cfg.Seccomp
	}
	return m
}

// SELinux returns the mode of SELinux: "enforcing", "permissive", or "" if it is off.
func (f *Facts) SELinux() string {
	switch f.text(f.sys("fs/selinux/enforce")) {
	case "":
		return ""
	case "1":
		return "enforcing"
	default:
		return "permissive"
	}
}

func (f *Facts) proc(name string) string { return filepath.Join(f.cfg.Proc, name) }

func (f *Facts) sys(name string) string { return filepath.Join(f.cfg.Sys, name) }

func (f *Facts) has(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// text returns the content of a small file without the line end. It returns "" if the file cannot
// be read.
func (f *Facts) text(path string) string {
	b, err := safefile.ReadFile(path, maxSmall)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hugePages returns the huge page sizes of the kernel (Documentation/admin-guide/mm/hugetlbpage
// of Linux).
func (f *Facts) hugePages() []string {
	all, _ := f.kernel.HugePages(context.Background())
	var out []string
	for _, p := range all {
		n, unit := p.Size/1024, 0
		for units := "KMGT"; n%1024 == 0 && unit < len(units)-1; unit++ {
			n /= 1024
		}
		out = append(out, strconv.FormatInt(n, 10)+"KMGT"[unit:unit+1]+"B")
	}
	return out
}

// capabilityNames are the capabilities in the order of their numbers (linux/capability.h).
var capabilityNames = strings.Fields(`
	CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
	NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
	SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
	BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// capabilities returns the capabilities that the kernel knows and that are in the bounding set
// of this process. The bounding set is smaller if this process runs in a container.
func (f *Facts) capabilities() []string {
	last, err := strconv.Atoi(f.text(f.proc("sys/kernel/cap_last_cap")))
	if err != nil {
		last = len(capabilityNames) - 1
	}
	bounding, err := strconv.ParseUint(f.status("CapBnd"), 16, 64)
	if err != nil {
		bounding = ^uint64(0)
	}
	var out []string
	for i, name := range capabilityNames {
		if i <= last && bounding&(1<<i) != 0 {
			out = append(out, "CAP_"+name)
		}
	}
	return out
}

// status returns a field of /proc/self/status.
func (f *Facts) status(field string) string {
	for line := range strings.Lines(f.text(f.proc("self/status"))) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// leastOOMScoreAdj returns the lowest oom_score_adj that this process may set. Without
// CAP_SYS_RESOURCE, it is the value that the process has now (proc_oom_score_adj(5)).
func (f *Facts) leastOOMScoreAdj() int64 {
	const least, sysResource = -1000, 24
	// In a user namespace the capability does not count.
	if effective, err := strconv.ParseUint(f.status("CapEff"), 16, 64); err == nil && effective&(1<<sysResource) != 0 && !userns.RunningInUserNS() {
		return least
	}
	own, err := strconv.ParseInt(f.text(f.proc("self/oom_score_adj")), 10, 64)
	if err != nil {
		return 0
	}
	return max(own, least)
}

// appArmorProfiles returns the names of the loaded profiles.
func (f *Facts) appArmorProfiles() []string {
	b, err := safefile.ReadFile(f.sys("kernel/security/apparmor/profiles"), maxProfiles)
	if err != nil {
		return nil
	}
	var out []string
	for line := range bytes.Lines(b) {
		// The format is "name (mode)"; the name may contain blanks and parentheses.
		text := strings.TrimSpace(string(line))
		if i := strings.LastIndex(text, " ("); i > 0 {
			out = append(out, text[:i])
		}
	}
	return out
}

// hasMountSetattr reports whether the kernel has mount_setattr (Linux 5.12), which runtimes need
// for recursively read-only mounts.
func hasMountSetattr() bool {
	return !errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS)
}
