package spaces

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/detached"
)

// DefaultShmSize is the size of a sandbox's /dev/shm in bytes, that of containerd
// and CRI-O.
const DefaultShmSize = 64 << 20

// Config holds what Spaces need.
type Config struct {
	// StateDir is an absolute path on a tmpfs, in a directory that only root may
	// enter. Namespaces are pinned in ns below it, shared memory is in shm, sysfs in sys.
	StateDir string
	// ShmSize is the size of each /dev/shm in bytes; DefaultShmSize.
	ShmSize int64
}

// Spaces are the namespaces of all sandboxes. Its methods may be called from any
// goroutine; those for one sandbox come after each other.
type Spaces struct {
	cfg   Config
	queue detached.Queue
}

// New checks cfg. It makes nothing.
func New(cfg Config) (*Spaces, error) {
	var errs []error
	if !filepath.IsAbs(cfg.StateDir) || filepath.Clean(cfg.StateDir) != cfg.StateDir {
		errs = append(errs, fmt.Errorf("spaces: Config.StateDir is %q; want a clean absolute path", cfg.StateDir))
	}
	if cfg.ShmSize < 0 {
		errs = append(errs, fmt.Errorf("spaces: Config.ShmSize is %d; want at least 0", cfg.ShmSize))
	}
	if cfg.ShmSize == 0 {
		cfg.ShmSize = DefaultShmSize
	}
	return &Spaces{cfg: cfg, queue: detached.Queue{Wait: true}}, errors.Join(errs...)
}

// Request describes which namespaces a sandbox has of its own.
type Request struct {
	// ID is the sandbox's.
	ID       string
	IPC, UTS bool
	// User has the mappings of the user namespace, which owns the others; nil
	// means the host's.
	User *Mappings
	// Hostname is set in the UTS namespace, unless it is "".
	Hostname string
}

// Mappings are those of a user namespace, to be checked by ocispec.
type Mappings struct {
	UIDs, GIDs []*runtimeapi.IDMapping
}

// Paths are where a sandbox's namespaces are; "" means the host's.
type Paths struct {
	IPC, UTS, User string
	// Shm is the directory that is /dev/shm.
	Shm string
}

// HostShm is the directory of the host's shared memory, for sandboxes with the
// host's IPC namespace.
const HostShm = "/dev/shm"

// Names of directories below StateDir, and of a sandbox's namespaces in nsDir.
const (
	nsDir, shmDir, sysDir = "ns", "shm", "sys"

	ipcSuffix, utsSuffix, userSuffix = ".ipc", ".uts", ".user"
)

func (s *Spaces) path(id, suffix string) string {
	return filepath.Join(s.cfg.StateDir, nsDir, id+suffix)
}

func (s *Spaces) shm(id string) string { return filepath.Join(s.cfg.StateDir, shmDir, id) }

func (s *Spaces) sys(id string) string { return filepath.Join(s.cfg.StateDir, sysDir, id) }

// paths are those that a request leads to.
func (s *Spaces) paths(r Request) Paths {
	p := Paths{Shm: HostShm}
	if r.IPC {
		p.IPC, p.Shm = s.path(r.ID, ipcSuffix), s.shm(r.ID)
	}
	if r.UTS {
		p.UTS = s.path(r.ID, utsSuffix)
	}
	if r.User != nil {
		p.User = s.path(r.ID, userSuffix)
	}
	return p
}

const (
	maxID       = 128 // ours are 64 hexadecimal digits
	maxHostname = 64  // HOST_NAME_MAX of limits.h
)

func checkID(id string) error {
	ok := id != "" && len(id) <= maxID
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return fmt.Errorf("sandbox ID %.130q: must be 1 to %d letters, digits and underscores", id, maxID)
	}
	return nil
}

func (r Request) check() error {
	if err := checkID(r.ID); err != nil {
		return err
	}
	if r.UTS && (len(r.Hostname) > maxHostname || strings.ContainsRune(r.Hostname, 0)) {
		return invalid("hostname", r.Hostname, fmt.Sprintf("must have at most %d bytes, none of them NUL", maxHostname))
	}
	if r.User != nil && (len(r.User.UIDs) == 0 || len(r.User.GIDs) == 0) {
		return invalid("linux.security_context.namespace_options.userns_options", "", "must map users and groups")
	}
	return nil
}
