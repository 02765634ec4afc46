package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Config holds what a Reader needs.
type Config struct {
	// Root is where the cgroup file systems are; /sys/fs/cgroup.
	Root string
	// Mountpoint is where the file system of the writable layers is, as the CRI
	// reports it; an absolute path.
	Mountpoint string
}

// Reader reads figures. Its methods may be called from any goroutine.
type Reader struct {
	cfg    Config
	v2     bool
	layers layers
	kills  detached.Group[struct{}] // by cgroup

	mu      sync.Mutex
	samples map[string]sample // of CPU time, by cgroup
}

// sample is how much CPU time there was at a time.
type sample struct {
	at    time.Time
	nanos uint64
	rate  *uint64 // since the sample before
}

// New looks which cgroups the machine has.
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
	_, err := safefile.ReadFile(filepath.Join(cfg.Root, "cgroup.controllers"), maxFile)
	return &Reader{cfg: cfg, v2: err == nil, kills: detached.Group[struct{}]{Wait: true}, samples: map[string]sample{}}, nil
}

// maxFile is how much of a file of a cgroup is read, in bytes; memory.stat is
// some kilobytes long, and io.stat has a line for each disk.
const maxFile = 1 << 20

// checkCgroup refuses paths that are not below the root.
func checkCgroup(cgroup string) error {
	if !path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup || cgroup == "/" || strings.ContainsRune(cgroup, 0) {
		return fmt.Errorf("cgroup %.300q: must be a clean absolute path below the root", cgroup)
	}
	return nil
}

// dir is the directory of a cgroup; on v1 that of a controller's hierarchy.
func (r *Reader) dir(controller, cgroup string) string {
	if r.v2 {
		return filepath.Join(r.cfg.Root, cgroup)
	}
	return filepath.Join(r.cfg.Root, controller, cgroup)
}

// read reads a file of a cgroup; nil if it is not there.
func (r *Reader) read(controller, cgroup, name string) []byte {
	b, err := safefile.ReadFile(filepath.Join(r.dir(controller, cgroup), name), maxFile)
	if err != nil {
		return nil
	}
	return b
}

func (r *Reader) number(controller, cgroup, name string) *uint64 {
	n, ok := number(r.read(controller, cgroup, name))
	if !ok {
		return nil
	}
	return &n
}

// exists returns an error unless there is such a cgroup.
func (r *Reader) exists(cgroup string) error {
	if err := checkCgroup(cgroup); err != nil {
		return err
	}
	if _, err := safefile.ReadFile(filepath.Join(r.dir("memory", cgroup), "cgroup.procs"), maxFile); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s: %w", cgroup, fs.ErrNotExist)
	}
	return nil
}

// OOMFile is the file that says how often the kernel killed a process of a cgroup
// because its memory ran out: memory.events of v2, memory.oom_control of v1.
func (r *Reader) OOMFile(cgroup string) string {
	if r.v2 {
		return filepath.Join(r.dir("memory", cgroup), "memory.events")
	}
	return filepath.Join(r.dir("memory", cgroup), "memory.oom_control")
}

// maxSamples is how many cgroups' CPU times are remembered, and sampleLife how
// long, for those that are asked about no more.
const (
	maxSamples = 8192
	sampleLife = 10 * time.Minute
	// window is the shortest time that CPU time is averaged over.
	window = time.Second
)

// rate is how much CPU time a cgroup used of late, in nanoseconds a second; nil
// before the second look at it.
func (r *Reader) rate(cgroup string, now time.Time, nanos uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.samples[cgroup]
	elapsed := now.Sub(last.at)
	switch {
	case ok && elapsed < window && nanos >= last.nanos:
		return last.rate
	case ok && elapsed < sampleLife && nanos >= last.nanos: // else it is another one of the same name
		rate := uint64(float64(nanos-last.nanos) / elapsed.Seconds())
		r.samples[cgroup] = sample{now, nanos, &rate}
		return &rate
	}
	if len(r.samples) >= maxSamples {
		maps.DeleteFunc(r.samples, func(_ string, s sample) bool { return now.Sub(s.at) >= sampleLife })
		if len(r.samples) > maxSamples/2 { // else this would be done each time
			clear(r.samples)
		}
	}
	r.samples[cgroup] = sample{at: now, nanos: nanos}
	return nil
}
