package executor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// Config holds what an Executor needs. Path and StateDir are required.
type Config struct {
	// Path is the runtime's executable, absolute.
	Path string
	// Args come before each command, such as --systemd-cgroup.
	Args []string
	// StateDir is where the runtime keeps its state, absolute; on a tmpfs, since
	// the state of a container outlives no reboot.
	StateDir string
	// Timeout is the longest that a command may take; 10s.
	Timeout time.Duration
	// Log is silent by default.
	Log *zap.Logger
}

// DefaultTimeout is how long a command may take by default. containerd gives
// as much to its cleanup; what takes longer waits for a disk or in a hook.
const DefaultTimeout = 10 * time.Second

// Executor runs the commands of one runtime. Its methods may be called from
// any goroutine: those for different containers do not wait for each other.
type Executor struct {
	cfg   Config
	queue detached.Queue           // commands that change a container
	group detached.Group[[]byte]   // those that only read
	probe detached.Group[Features] // of features

	mu       sync.Mutex
	identity identity // of the executable that features is of
	features Features
}

// New checks cfg. It runs nothing.
func New(cfg Config) (*Executor, error) {
	var errs []error
	absolute := func(field, path string) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			errs = append(errs, fmt.Errorf("executor: Config.%s is %q; want an absolute path", field, path))
		}
	}
	absolute("Path", cfg.Path)
	absolute("StateDir", cfg.StateDir)
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("executor: Config.Timeout is %v; want at least 0", cfg.Timeout))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	cfg.Args = slices.Clone(cfg.Args)
	return &Executor{cfg: cfg, queue: detached.Queue{Wait: true}, group: detached.Group[[]byte]{Wait: true}}, nil
}

// Path returns the runtime's executable.
func (e *Executor) Path() string { return e.cfg.Path }

// InFlight returns how many commands have not ended. Above 0 with no caller
// waiting, a runtime hangs.
func (e *Executor) InFlight() int {
	return e.queue.InFlight() + e.group.InFlight() + e.probe.InFlight()
}
