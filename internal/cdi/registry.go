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

// Config configures a [Registry]. Every field has a default for its zero value.
type Config struct {
	// Dirs are the absolute paths of the directories of specifications. They need not exist. A
	// device in a later directory replaces one of the same name in an earlier one. The default is
	// /etc/cdi and /var/run/cdi, as in the CDI specification.
	Dirs []string
	Log  *zap.Logger // if nil, nothing is logged
}

// Dirs returns the default directories of specifications.
func Dirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// Limits for reading and injecting.
const (
	maxFiles  = 4096     // per directory; DRA drivers write one for each claim
	maxFile   = 4 << 20  // bytes; the files of the largest machines have some hundred kB
	maxValues = 200_000  // per file
	maxTotal  = 32 << 20 // bytes, for all files together
	maxSpec   = 8 << 20  // bytes of a container's configuration after injection

	// callTimeout limits how long a call waits for the file systems of specifications and devices.
	callTimeout = 10 * time.Second
	// maxCalls is the number of calls that may wait for such a file system at once.
	maxCalls = 16
)

// A Registry finds the CDI devices of a machine. Its methods may be called from any goroutine.
type Registry struct {
	cfg   Config
	edits detached.Group[*oci.Spec]
	looks detached.Group[*devices]
	calls atomic.Uint64

	mu    sync.Mutex
	files map[string]file // by path, as last read
}

// New checks cfg. It reads no files.
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
	return &Registry{cfg: cfg, edits: detached.Group[*oci.Spec]{Limit: maxCalls}, looks: detached.Group[*devices]{Limit: maxCalls}}, nil
}

// Dirs returns the directories of specifications.
func (r *Registry) Dirs() []string { return slices.Clone(r.cfg.Dirs) }

// Inject applies the edits of the devices to spec. The names are qualified (vendor/class=name);
// duplicates are ignored. If Inject fails, spec is unchanged, and the error names the device and
// its file. It also fails if a file system does not answer within 10 s.
func (r *Registry) Inject(ctx context.Context, spec *oci.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	edited, err := clone(spec)
	if err != nil {
		return err
	}
	names = slices.Clone(names)
	edited, err = call(ctx, r, &r.edits, func() (*oci.Spec, error) {
		return edited, r.devices().inject(edited, names)
	})
	if err != nil {
		return err
	}
	*spec = *edited
	return nil
}

// Device is a device that a CDI specification defines.
type Device struct {
	Name string // within its kind
	// Nodes are the paths on the host of the device's own nodes. Nodes that all devices of its
	// specification have are not among them.
	Nodes []string
}

// Devices returns the devices of a kind (vendor/class), sorted by name. A device that Inject
// refuses, because two files of the same directory define it, is left out. It fails if a file
// system does not answer within 10 s.
func (r *Registry) Devices(ctx context.Context, kind string) ([]Device, error) {
	found, err := call(ctx, r, &r.looks, func() (*devices, error) { return r.devices(), nil })
	if err != nil {
		return nil, err
	}
	return found.of(kind), nil
}

// call runs f, which reads the directories of the specifications or the devices, on a goroutine of
// g. It returns an error if f takes longer than callTimeout. Each run has its own key, so that no two
// share a result: an earlier run may have missed a file that was written after it began.
func call[T any](ctx context.Context, r *Registry, g *detached.Group[T], f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("directories %q or their devices did not answer within %v", r.cfg.Dirs, callTimeout))
	defer cancel()
	return g.Do(ctx, strconv.FormatUint(r.calls.Add(1), 10), f)
}

// clone makes a deep copy of a configuration or of a part of one.
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
