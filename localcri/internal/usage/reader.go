package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/kernel"
)

// Config configures a Reader.
type Config struct {
	// Root is the directory of the cgroup file systems. The default is /sys/fs/cgroup.
	Root string
	// Mountpoint is the absolute path of the file system that contains the writable layers.
	// Answers of the CRI report it.
	Mountpoint string
}

// Reader reads the usage of containers and pods. Its methods may be called from any goroutine.
type Reader struct {
	cfg    Config
	kernel *kernel.Reader
	v2     bool
	layers layers
	kills  detached.Group[struct{}] // by cgroup

	mu      sync.Mutex
	samples map[string]sample // of CPU time, by cgroup
}

// sample is the CPU time of a cgroup at one point in time.
type sample struct {
	at    time.Time
	nanos uint64
	rate  *uint64 // since the previous sample
}

// New detects the version of cgroups.
func New(cfg Config) (*Reader, error) {
	if cfg.Root == "" {
		cfg.Root = "/sys/fs/cgroup"
	}
	var errs []error
	for field, p := range map[string]string{"Root": cfg.Root, "Mountpoint": cfg.Mountpoint} {
		if !filepath.IsAbs(p) {
			errs = append(errs, fmt.Errorf("usage: Config.%s is %q; want an absolute path", field, p))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r := &Reader{cfg: cfg, kernel: kernel.New(kernel.Options{Cgroups: kernel.Dir(cfg.Root)}), kills: detached.Group[struct{}]{Wait: true}, samples: map[string]sample{}}
	var err error
	if r.v2, err = r.kernel.V2(context.Background()); err != nil {
		return nil, fmt.Errorf("usage: detect version of cgroups: %w", err)
	}
	return r, nil
}

// maxFile is the limit for reading a small file of a cgroup or a process, in bytes.
const maxFile = 1 << 20

// checkCgroup rejects paths that are not below the root.
func checkCgroup(cgroup string) error {
	if !path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup || cgroup == "/" || strings.ContainsRune(cgroup, 0) {
		return fmt.Errorf("cgroup %.300q: must be a clean absolute path below the root", cgroup)
	}
	return nil
}

// dir returns the directory of a cgroup. With cgroup v1, it is the directory in the controller's
// hierarchy; with v2, controller is ignored.
func (r *Reader) dir(controller, cgroup string) string {
	if r.v2 {
		return filepath.Join(r.cfg.Root, cgroup)
	}
	return filepath.Join(r.cfg.Root, controller, cgroup)
}

// OOMFile returns the path of the file that counts OOM kills in a cgroup: memory.events of v2,
// memory.oom_control of v1.
func (r *Reader) OOMFile(cgroup string) string {
	if r.v2 {
		return filepath.Join(r.dir("memory", cgroup), "memory.events")
	}
	return filepath.Join(r.dir("memory", cgroup), "memory.oom_control")
}

// maxSamples is the maximum number of stored CPU samples. sampleLife is how long a sample is
// kept if its cgroup is no longer read.
const (
	maxSamples = 8192
	sampleLife = 10 * time.Minute
	// window is the shortest time over which the CPU usage is averaged.
	window = time.Second
)

// rate returns the CPU usage of a cgroup between the last two samples, in nanoseconds per
// second. It returns nil at the first call.
func (r *Reader) rate(cgroup string, now time.Time, nanos uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.samples[cgroup]
	elapsed := now.Sub(last.at)
	switch {
	case ok && elapsed < window && nanos >= last.nanos:
		return last.rate
	case ok && elapsed < sampleLife && nanos >= last.nanos: // otherwise it is another cgroup of the same name
		rate := uint64(float64(nanos-last.nanos) / elapsed.Seconds())
		r.samples[cgroup] = sample{now, nanos, &rate}
		return &rate
	}
	if len(r.samples) >= maxSamples {
		maps.DeleteFunc(r.samples, func(_ string, s sample) bool { return now.Sub(s.at) >= sampleLife })
		if len(r.samples) > maxSamples/2 { // otherwise each call would do this
			clear(r.samples)
		}
	}
	r.samples[cgroup] = sample{at: now, nanos: nanos}
	return nil
}
