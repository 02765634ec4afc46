//go:build linux

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// Config holds what a [Registry] needs. The zero value of every field means the
// default named beside it.
type Config struct {
	// Dirs are the absolute paths of the directories of specifications, which need
	// not be there. A device of a later one hides that of the same name of an
	// earlier one. /etc/cdi and /var/run/cdi, as the interface has them.
	Dirs []string
	Log  *zap.Logger // silent
}

// Dirs returns the usual directories of specifications.
func Dirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// Limits of what is read and made.
const (
	maxFiles  = 4096     // of one directory, since DRA drivers make one for each claim
	maxFile   = 4 << 20  // bytes; those of the largest machines have some hundred kB
	maxValues = 200_000  // of one file
	maxTotal  = 32 << 20 // bytes of all files
	maxSpec   = 8 << 20  // bytes of a container's configuration afterwards

	// patience is how long the file systems of specifications and devices may take.
	patience = 10 * time.Second
	// maxCalls is how many calls may wait for such a file system.
	maxCalls = 16
)

// A Registry knows the devices of a machine. Its methods may be called from any
// goroutine.
type Registry struct {
	cfg   Config
	slow  detached.Group[*oci.Spec]
	calls atomic.Uint64

	mu    sync.Mutex
	files map[string]file // by path, as they were last read
}

// New checks cfg and reads nothing.
func New(cfg Config) (*Registry, error) {
	if len(cfg.Dirs) == 0 {
		cfg.Dirs = Dirs()
	}
	cfg.Dirs = slices.Clone(cfg.Dirs)
	for i, d := range cfg.Dirs {
		if !filepath.IsAbs(d) {
			return nil, fmt.Errorf("cdi: Config.Dirs[%d] is %q; want an absolute path", i, d)
		}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Registry{cfg: cfg, slow: detached.Group[*oci.Spec]{Limit: maxCalls}}, nil
}

// Dirs returns the directories of specifications.
func (r *Registry) Dirs() []string { return slices.Clone(r.cfg.Dirs) }

// Inject changes spec so that the container has the devices, whose names are
// qualified, as vendor/class=name; one that is named twice counts once. An error
// names the device and its file, and leaves spec as it was. File systems that do
// not answer are given up after 10 s.
func (r *Registry) Inject(ctx context.Context, spec *oci.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	edited, err := clone(spec)
	if err != nil {
		return err
	}
	names = slices.Clone(names)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("directories %q or their devices did not answer within %v", r.cfg.Dirs, patience))
	defer cancel()
	// Calls have keys of their own: one that joined another's might miss a file
	// that was written since that began.
	key := strconv.FormatUint(r.calls.Add(1), 10)
	edited, err = r.slow.Do(ctx, key, func() (*oci.Spec, error) {
		return edited, r.devices().inject(edited, names)
	})
	if err != nil {
		return err
	}
	*spec = *edited
	return nil
}

// clone copies a configuration, or what is part of one.
func clone[T any](v *T) (*T, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var c T
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

var errTooLarge = errors.New("configuration of the container becomes too large")
