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

// Config holds what a [Runtime] needs. RootDir, StateDir, Handlers, Network and
// Images are required; the zero value of every other field means the
// default named beside it.
type Config struct {
	// RootDir is a directory on a disk, absolute: records and the writable layers
	// of containers. It is made for root alone.
	RootDir string
	// StateDir is a directory on a tmpfs, absolute and of at most 31 bytes, since
	// sockets are below it: what dies with the boot. It is made for root alone.
	StateDir string
	// Handlers are the OCI runtimes by their names, as RuntimeClasses have them.
	Handlers map[string]Handler
	// DefaultHandler is the one of a sandbox that names none; the only one, or
	// "runc".
	DefaultHandler string
	// Monitor is the absolute path of another build of the monitor program, which is
	// localcri/nodewright-monitor; the one that this package carries for amd64 and arm64,
	// which Run places below RootDir.
	Monitor string
	// PlaceMonitor puts a monitor's process into the cgroup where it is to live,
	// outside those of this process and of the pods; it stays in this process'. In a
	// pod's cgroup, the memory of the OCI runtime would count against the pod's limit,
	// and a pod that uses all of its CPU could not be probed or stopped in time.
	PlaceMonitor func(pid int) error
	Network      Network
	Images       Images

	// CgroupDriver is "cgroupfs" or "systemd"; cgroupfs.
	CgroupDriver string
	// Seccomp returns the profile for RuntimeDefault. Nil: moby's default profile.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// AppArmorProfile is the name of the profile that stands for RuntimeDefault
	// while it is loaded; none.
	AppArmorProfile string
	// CDI knows the devices of the Container Device Interface; nobody, and every
	// name is refused.
	CDI CDI
	// Reserve is how many bytes of RootDir's file system new containers leave
	// free; 64 MiB.
	Reserve int64
	// ShmSize is that of a sandbox's /dev/shm in bytes; 64 MiB, as other runtimes
	// have it.
	ShmSize int64
	// Name and Version are what Version answers; "nodewright" and "0.0.0".
	Name, Version string

	// BootID names the present boot of the machine; the kernel's.
	BootID string
	Log    *zap.Logger // silent

	parts parts // the real ones
}

// Handler is an OCI runtime.
type Handler struct {
	// Path is the program's, absolute.
	Path string
	// Args come before each of its commands.
	Args []string
	// PrivilegedWithoutHostDevices leaves the host's devices out of privileged
	// containers.
	PrivilegedWithoutHostDevices bool
}

const (
	defaultReserve = 64 << 20
	defaultShm     = 64 << 20
	defaultHandler = "runc"

	// maxStateDir leaves room for "/mon/", an ID and "/socket" in the address of a
	// unix socket, 107 bytes by unix(7).
	maxStateDir = 107 - len("/mon//socket") - idLength
)

// Limits of time that no caller sets. All are for work that a caller may have
// stopped waiting for.
const (
	// createTimeout is that of each step of the executor's create and start. A
	// container of a machine under load takes seconds.
	createTimeout = time.Minute
	// killPatience is how long after SIGKILL a process is waited for: one that has
	// not ended by then waits for a disk.
	killPatience = 10 * time.Second
	// parkTime is how long a sandbox or container is kept whose caller has gone.
	parkTime = time.Minute
	// monitorTimeout is that of a monitor's answers that wait for nobody else.
	monitorTimeout = 10 * time.Second
	// spaceTimeout is that of making the namespaces and files of a sandbox.
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
	for _, n := range []struct {
		name  string
		value *int64
		usual int64
	}{{"Reserve", &c.Reserve, defaultReserve}, {"ShmSize", &c.ShmSize, defaultShm}} {
		if *n.value < 0 {
			bad("%s is %d; want a positive number of bytes, or 0 for %d", n.name, *n.value, n.usual)
		}
		*n.value = cmp.Or(*n.value, n.usual)
	}
	c.Name, c.Version = cmp.Or(c.Name, "nodewright"), cmp.Or(c.Version, "0.0.0")
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.BootID == "" {
		var err error
		c.BootID, err = bootid.Read(os.DirFS("/")) //nolint:forbidigo // of the kernel
		errs = append(errs, err)
	}
	c.Handlers = maps.Clone(c.Handlers)
	return c, errors.Join(errs...)
}
