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

// Config configures an Executor. Path and StateDir are required.
type Config struct {
	// Path is the absolute path of the runtime's executable.
	Path string
	// Args are global options that precede each command, for example --systemd-cgroup.
	Args []string
	// StateDir is the absolute path of the directory for the runtime's state. It should be on a
	// tmpfs, since no container survives a reboot.
	StateDir string
	// Timeout is the time limit for a command. The default is 10 s.
	Timeout time.Duration
	// Log receives messages about failures. If it is nil, nothing is logged.
	Log *zap.Logger
}

// DefaultTimeout is the default time limit for a command. It is the limit that containerd has
// for its cleanup. A command that takes longer waits for a disk or a hook.
const DefaultTimeout = 10 * time.Second

// Executor runs the commands of one runtime. Its methods may be called from any goroutine;
// commands for different containers do not wait for each other.
type Executor struct {
	cfg   Config
	queue detached.Queue           // commands that change a container
	group detached.Group[[]byte]   // commands that only read
	probe detached.Group[Features] // the features command

	mu       sync.Mutex
	identity identity // of the executable that the features belong to
	features Features
}

// New checks cfg. It runs no command.
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

// InFlight returns the number of running commands. If it is above 0 and no caller waits, a
// runtime hangs.
func (e *Executor) InFlight() int {
	return e.queue.InFlight() + e.group.InFlight() + e.probe.InFlight()
}
