package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features are the abilities of a runtime that not all runtimes have.
type Features struct {
	// Version is the first line of the output of --version, for example "runc version 1.5.2".
	Version string
	// Plain reports that the runtime has no features command. The other fields then come from the
	// output of --version, and cgroup support is assumed.
	Plain bool
	// RecursiveReadOnly reports whether the runtime supports the mount option rro.
	RecursiveReadOnly bool
	// IDMap reports whether the runtime supports ID-mapped mounts.
	IDMap bool
	// NetDevices reports whether the runtime can move network devices into containers.
	NetDevices bool
	// IntelRdt reports whether the runtime supports resctrl.
	IntelRdt bool
	// UserNamespaces reports whether the runtime can join user namespaces.
	UserNamespaces bool
	Seccomp        bool
	AppArmor       bool
	SELinux        bool
	// CgroupV1, CgroupV2 and Systemd report which cgroups the runtime can create.
	CgroupV1, CgroupV2, Systemd bool
	// Capabilities are the capabilities that the runtime knows, for example CAP_CHOWN.
	Capabilities []string
}

// identity identifies the content of a file. It changes if the file is replaced or written to.
type identity struct {
	device, inode uint64
	size          int64
	modified      time.Time
}

// Features asks the runtime for its features, once for each executable installed at its path.
// Runtimes for a version of the runtime specification before 1.1 have no features command: then
// the features come from the output of --version, and Plain is true.
func (e *Executor) Features(ctx context.Context) (Features, error) {
	now, err := e.look()
	if err != nil {
		return Features{}, err
	}
	e.mu.Lock()
	known, f := e.identity == now, e.features
	e.mu.Unlock()
	if !known {
		key := fmt.Sprint(now)
		f, err = e.probe.Do(ctx, key, func() (Features, error) {
			f, err := e.askFeatures()
			if err == nil {
				e.mu.Lock()
				e.identity, e.features = now, f
				e.mu.Unlock()
			}
			return f, err
		})
		if err != nil {
			return Features{}, err
		}
	}
	f.Capabilities = slices.Clone(f.Capabilities)
	return f, nil
}

// look identifies the executable that is installed now.
func (e *Executor) look() (identity, error) {
	info, err := os.Stat(e.cfg.Path)
	if err != nil {
		return identity{}, fmt.Errorf("find OCI runtime: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return identity{}, &fs.PathError{Op: "run OCI runtime", Path: e.cfg.Path, Err: fmt.Errorf("is of mode %v; want an executable file", info.Mode())}
	}
	return identity{uint64(st.Dev), st.Ino, info.Size(), info.ModTime()}, nil //nolint:unconvert // Dev has 32 bits elsewhere
}

func (e *Executor) askFeatures() (Features, error) {
	version, err := e.run("version", "", []string{e.cfg.Path, "--version"}, nil)
	if err != nil {
		return Features{}, err
	}
	line, _, _ := strings.Cut(string(version), "\n")
	out, err := e.run("features", "", append(e.base(""), "features"), nil)
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return plain(string(version)), nil
	}
	if err != nil {
		return Features{}, err
	}
	f, err := parseFeatures(out)
	if err != nil {
		return Features{}, &Error{Runtime: e.cfg.Path, Command: "features", Err: err}
	}
	f.Version = printable(line)
	return f, nil
}

// plain derives features from the output of --version. crun lists its build options there, runc
// the version of its libseccomp.
func plain(version string) Features {
	line, rest, _ := strings.Cut(version, "\n")
	f := Features{Version: printable(line), Plain: true, CgroupV1: true, CgroupV2: true}
	for word := range strings.FieldsSeq(rest) {
		switch word {
		case "+SECCOMP", "libseccomp:":
			f.Seccomp = true
		case "+APPARMOR":
			f.AppArmor = true
		case "+SELINUX":
			f.SELinux = true
		case "+SYSTEMD":
			f.Systemd = true
		}
	}
	return f
}

// maxCapabilities is the number of capabilities that Linux can have at most, since each is a bit
// of a 64-bit number.
const maxCapabilities = 64

func parseFeatures(out []byte) (Features, error) {
	var said features.Features
	if err := json.Unmarshal(out, &said); err != nil {
		return Features{}, fmt.Errorf("parse features: %w", err)
	}
	f := Features{RecursiveReadOnly: slices.Contains(said.MountOptions, "rro")}
	l := said.Linux
	if l == nil {
		return f, nil
	}
	yes := func(b *bool) bool { return b != nil && *b }
	f.IDMap = l.MountExtensions != nil && l.MountExtensions.IDMap != nil && yes(l.MountExtensions.IDMap.Enabled)
	f.NetDevices = l.NetDevices != nil && yes(l.NetDevices.Enabled)
	f.IntelRdt = l.IntelRdt != nil && yes(l.IntelRdt.Enabled)
	f.UserNamespaces = slices.Contains(l.Namespaces, "user")
	f.Seccomp = l.Seccomp != nil && yes(l.Seccomp.Enabled)
	f.AppArmor = l.Apparmor != nil && yes(l.Apparmor.Enabled)
	f.SELinux = l.Selinux != nil && yes(l.Selinux.Enabled)
	if c := l.Cgroup; c != nil {
		f.CgroupV1, f.CgroupV2, f.Systemd = yes(c.V1), yes(c.V2), yes(c.Systemd)
	}
	if len(l.Capabilities) > maxCapabilities {
		return Features{}, fmt.Errorf("runtime has %d capabilities; want at most %d", len(l.Capabilities), maxCapabilities)
	}
	f.Capabilities = l.Capabilities
	return f, nil
}
