//go:build linux

package localcri

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/bootid"
)

// Config holds what a [Runtime] needs. RootDir, StateDir, Handlers, Network and Images are
// required. Every other field has a default for its zero value.
type Config struct {
	// RootDir is an absolute directory on a disk, for records and the writable layers of
	// containers. It is created, and only root can access it.
	RootDir string
	// StateDir is an absolute directory on a tmpfs, for state that a reboot ends. Its path may
	// have at most 31 bytes, since sockets are below it. It is created, and only root can
	// access it.
	StateDir string
	// Handlers are the OCI runtimes by the handler names that RuntimeClasses use.
	Handlers map[string]Handler
	// DefaultHandler is the handler of a sandbox that names none. If it is "", the only handler
	// is the default, or "runc" if there are several.
	DefaultHandler string
	// Monitor is the absolute path of another build of the monitor program,
	// localcri/nodewright-monitor. If it is "", Run writes the program that this package contains
	// for amd64 and arm64 below RootDir and uses that.
	Monitor string
	// PlaceMonitor moves a monitor's process to a cgroup outside of this process's cgroup and of
	// the pods' cgroups. If it is nil, the monitor stays in this process's cgroup. A monitor must
	// not be in a pod's cgroup: the memory of the OCI runtime would count against the pod's
	// limit, and a pod that uses all of its CPU could not be probed or stopped in time.
	PlaceMonitor func(pid int) error
	Network      Network
	Images       Images

	// CgroupDriver is "cgroupfs" (the default) or "systemd".
	CgroupDriver string
	// Seccomp returns the profile for RuntimeDefault. If it is nil, moby's default profile is
	// used.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// AppArmorProfile is the name of the profile for RuntimeDefault. It is applied only while the
	// kernel has loaded it. If it is "", RuntimeDefault means no profile.
	AppArmorProfile string
	// CDI adds devices of the Container Device Interface. If it is nil, every CDI device name is
	// rejected.
	CDI CDI
	// Hooks follow sandboxes and containers, and change containers; see package localcri/nri. If it
	// is nil, there are none.
	Hooks Hooks
	// Reserve is the number of bytes that must be free on RootDir's file system when a container
	// is created. The default is 64 MiB.
	Reserve int64
	// Projects measures the writable layers of pods with a user namespace by project quotas, on
	// file systems that support these (ext4 and XFS, Linux 5.14). On other file systems, and by
	// default, the directories of a layer are walked.
	Projects bool
	// Name and Version are the runtime's name and version in answers of the method Version. The
	// defaults are "nodewright" and "0.0.0".
	Name, Version string

	// BootID identifies the current boot of the machine. The default is the kernel's boot ID.
	BootID string
	Log    *zap.Logger // if nil, nothing is logged

	parts parts // the real ones, except in tests
}

// Handler is an OCI runtime.
type Handler struct {
	// Path is the absolute path of the program.
	Path string
	// Args are passed to the program before the arguments of each command.
	Args []string
	// PrivilegedWithoutHostDevices means that privileged containers get no devices of the host.
	PrivilegedWithoutHostDevices bool
}

const (
	defaultReserve = 64 << 20
	shmSize        = 64 << 20 // of a sandbox's /dev/shm in bytes, as in other runtimes
	defaultHandler = "runc"

	// maxStateDir leaves space for "/mon/", an ID and "/socket" in the address of a unix socket,
	// which has 107 bytes (unix(7)).
	maxStateDir = 107 - len("/mon//socket") - idLength
)

// Time limits for work that continues after its callers have given up, and so cannot use their
// limits.
const (
	// createTimeout limits each step of the OCI runtime's create and start. On a machine under
	// load, a step may take seconds.
	createTimeout = time.Minute
	// killTimeout limits the wait for a process after SIGKILL. A process that has not ended by
	// then is blocked on a disk.
	killTimeout = 10 * time.Second
	// unclaimedTime is how long a new sandbox or container is kept after all its callers have given
	// up.
	unclaimedTime = time.Minute
	// monitorTimeout limits monitor calls that do not wait for anything else.
	monitorTimeout = 10 * time.Second
	// spaceTimeout limits the creation of a sandbox's namespaces and files.
	spaceTimeout = 30 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("Config."+format, args...)) }
	for _, d := range []struct {
		name  string
		value *string
	}{{"RootDir", &c.RootDir}, {"StateDir", &c.StateDir}} {
		if !filepath.IsAbs(*d.value) {
			bad("%s is %q; want an absolute path", d.name, *d.value)
		}
		*d.value = filepath.Clean(*d.value)
	}
	if c.Monitor != "" && !filepath.IsAbs(c.Monitor) {
		bad("Monitor is %q; want an absolute path, or none", c.Monitor)
	}
	if len(c.StateDir) > maxStateDir {
		bad("StateDir is %q; want at most %d bytes", c.StateDir, maxStateDir)
	}
	if len(c.Handlers) == 0 {
		bad("Handlers is empty; want at least one")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
		if name == "" || !filepath.IsAbs(c.Handlers[name].Path) {
			bad("Handlers[%q].Path is %q; want a name and an absolute path", name, c.Handlers[name].Path)
		}
	}
	if c.DefaultHandler == "" {
		c.DefaultHandler = defaultHandler
		if len(c.Handlers) == 1 {
			for name := range c.Handlers {
				c.DefaultHandler = name
			}
		}
	}
	if _, ok := c.Handlers[c.DefaultHandler]; !ok && len(c.Handlers) > 0 {
		bad("DefaultHandler is %q; want one of %q", c.DefaultHandler, slices.Sorted(maps.Keys(c.Handlers)))
	}
	if c.Network == nil {
		bad("Network is nil; want a network")
	}
	if c.Images == nil {
		bad("Images is nil; want a store of images")
	}
	switch c.CgroupDriver {
	case "":
		c.CgroupDriver = "cgroupfs"
	case "cgroupfs", "systemd":
	default:
		bad(`CgroupDriver is %q; want "cgroupfs" or "systemd"`, c.CgroupDriver)
	}
	if c.Reserve < 0 {
		bad("Reserve is %d; want a positive number of bytes, or 0 for %d", c.Reserve, defaultReserve)
	}
	c.Reserve = cmp.Or(c.Reserve, defaultReserve)
	c.Name, c.Version = cmp.Or(c.Name, "nodewright"), cmp.Or(c.Version, "0.0.0")
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.BootID == "" {
		var err error
		c.BootID, err = bootid.Read(os.DirFS("/")) //nolint:forbidigo // the kernel's boot ID
		errs = append(errs, err)
	}
	c.Handlers = maps.Clone(c.Handlers)
	return c, errors.Join(errs...)
}
