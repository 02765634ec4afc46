package spaces

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/detached"
)

// DefaultShmSize is the size of a sandbox's /dev/shm in bytes, as in containerd and CRI-O.
const DefaultShmSize = 64 << 20

// Config configures Spaces.
type Config struct {
	// StateDir is the absolute path of a directory on a tmpfs that only root may enter.
	// Namespaces are pinned in its directory ns, shared memory is in shm, and sysfs in sys.
	StateDir string
	// ShmSize is the size of each sandbox's /dev/shm in bytes. The default is DefaultShmSize.
	ShmSize int64
}

// Spaces manages the namespaces of all sandboxes. Its methods may be called from any goroutine;
// calls for one sandbox run one after another.
type Spaces struct {
	cfg   Config
	queue detached.Queue
}

// New checks cfg. It creates nothing.
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

// Request describes the namespaces of a sandbox.
type Request struct {
	// ID is the sandbox's ID, which is part of the paths of its namespaces.
	ID       string
	IPC, UTS bool
	// User has the mappings of the sandbox's user namespace, to which its other namespaces
	// belong. If User is nil, the sandbox uses the host's user namespace.
	User *Mappings
	// Hostname is the host name in the UTS namespace. If it is "", no host name is set.
	Hostname string
}

// Mappings are the ID mappings of a user namespace. Package ocispec checks them.
type Mappings struct {
	UIDs, GIDs []*runtimeapi.IDMapping
}

// Paths are the paths of a sandbox's namespaces. If a path is "", the sandbox uses the host's
// namespace.
type Paths struct {
	IPC, UTS, User string
	// Shm is the directory to mount at /dev/shm.
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

// paths returns the paths for a request.
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
	maxID       = 128 // the IDs of this program have 64 hexadecimal digits
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
