//go:build linux

package localcri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/checkpoint"
)

// Runtime is a CRI RuntimeService. All its methods may be called at the same
// time; those before Run has read the records wait for it, or until their
// contexts end. Errors are gRPC statuses.
type Runtime struct {
	cfg Config
	parts
	log *zap.Logger

	loaded  chan struct{} // closed when the records are in memory
	whole   chan struct{} // closed when every sandbox of the past is known
	over    chan struct{} // closed when Run has returned
	began   atomic.Bool
	base    context.Context // of all work; set before loaded is closed
	begins  sync.Mutex      // held while work begins
	work    sync.WaitGroup  // of base's time
	events  *broadcaster
	counts  counters
	execs   atomic.Uint64 // number of the last one
	outputs atomic.Int64  // bytes that ExecSync keeps for callers without a small limit

	sandboxRecords   *checkpoint.Store
	containerRecords *checkpoint.Store

	mu         sync.Mutex // guards what is below, and is held over nothing but memory
	pods       map[string]*pod
	names      map[string]*pod       // by the key of their metadata
	containers map[string]*container // of all pods
	erasing    map[string]bool       // containers that are out of the tables, and have files yet
	podCIDR    string                // as UpdateRuntimeConfig told
}

// New checks cfg and the machine, and returns a Runtime for both, or an error
// that has all reasons against it. It makes and changes nothing.
func New(cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("localcri: %w", err)
	}
	r := &Runtime{
		cfg: cfg, parts: cfg.parts, log: cfg.Log,
		loaded: make(chan struct{}), whole: make(chan struct{}), over: make(chan struct{}),
		pods: map[string]*pod{}, names: map[string]*pod{}, containers: map[string]*container{}, erasing: map[string]bool{},
	}
	r.events = newBroadcaster()
	r.counts.refused = newRefused()
	r.execs.Store(uint64(mathrand.Uint32())) // what an earlier process has left behind may come yet, under its number
	if err := r.assemble(); err != nil {
		return nil, fmt.Errorf("localcri: %w", err)
	}
	return r, nil
}

// Run recovers what is there, and works until ctx ends. It is called once.
// Containers and their monitors go on without it. An error means that the
// directories cannot be used, as those that another Runtime has: its process is
// named.
func (r *Runtime) Run(ctx context.Context) error {
	if r.began.Swap(true) {
		return fmt.Errorf("localcri: Run was called before")
	}
	defer close(r.over)
	unlock, err := r.prepare()
	if err != nil {
		return fmt.Errorf("localcri: %w", err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.base = ctx
	r.nameLacks(ctx)
	if err := r.recoverAll(); err != nil {
		return fmt.Errorf("localcri: %w", err)
	}
	<-ctx.Done()
	r.awaitWork()
	r.events.close()
	r.disconnect()
	return nil
}

// awaitWork waits for what goes on, but not for what waits for a disk: the next
// runtime finishes it.
func (r *Runtime) awaitWork() {
	const patience = 10 * time.Second
	r.begins.Lock()   // base is over: what begins from here on is not waited for
	r.begins.Unlock() //nolint:staticcheck // all that is wanted is the order
	done := make(chan struct{})
	go func() {
		r.work.Wait()
		close(done)
	}()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		r.log.Warn("left work behind that does not end", zap.Duration("waited", patience))
	}
}

// Ready is closed when it is known what became of everything that there was at
// the start. Calls that come before wait for what they are about.
func (r *Runtime) Ready() <-chan struct{} { return r.whole }

// disconnect leaves the monitors alone.
func (r *Runtime) disconnect() {
	for _, p := range r.allPods() {
		p.mu.Lock()
		m := p.monitor
		p.monitor = nil
		p.mu.Unlock()
		if m != nil {
			m.Close()
		}
	}
}

// await waits until the records are in memory.
func (r *Runtime) await(ctx context.Context) error {
	select {
	case <-r.loaded:
	case <-r.over:
		return errStopped
	case <-ctx.Done():
		return coded(context.Cause(ctx))
	}
	if r.base.Err() != nil {
		return errStopped
	}
	return nil
}

// do runs work of the runtime's own. It is given the context that outlives
// callers.
func (r *Runtime) do(f func(ctx context.Context)) {
	r.begins.Lock()
	defer r.begins.Unlock()
	if r.base.Err() != nil { // Run may be waiting for the last of it: this one sees at once that all is over
		go f(r.base)
		return
	}
	r.work.Go(func() { f(r.base) })
}

// newID is an ID of a sandbox or container.
func newID() string {
	b := make([]byte, idLength/2)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// podKey is what no two sandboxes share.
func podKey(m *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
}

func containerKey(m *runtimeapi.ContainerMetadata) string {
	return m.GetName() + "_" + fmt.Sprint(m.GetAttempt())
}

// lookPod finds a sandbox by its ID, or by the first digits of it if they are of
// one alone, and waits for its recovery.
func (r *Runtime) lookPod(ctx context.Context, id string) (*pod, error) {
	p, err := r.goingPod(ctx, id)
	if err == nil && !p.visible() {
		return nil, notFound("sandbox", id)
	}
	return p, err
}

// goingPod is lookPod that finds also what callers do not see any more or yet: who removes it
// waits for the removal that is under way.
func (r *Runtime) goingPod(ctx context.Context, id string) (*pod, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	p, err := look(ctx, r, func() *pod { return find(r.pods, id) })
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, notFound("sandbox", id)
	}
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// lookContainer finds a container as lookPod does a sandbox.
func (r *Runtime) lookContainer(ctx context.Context, id string) (*container, error) {
	c, err := r.goingContainer(ctx, id)
	if err == nil && !c.visible() {
		return nil, notFound("container", id)
	}
	return c, err
}

// goingContainer is goingPod for a container.
func (r *Runtime) goingContainer(ctx context.Context, id string) (*container, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	c, err := look(ctx, r, func() *container { return find(r.containers, id) })
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, notFound("container", id)
	}
	if err := c.pod.await(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// look finds something, after the recovery of all if it is not there before: a
// monitor may have the only record of it.
func look[T any](ctx context.Context, r *Runtime, find func() *T) (*T, error) {
	locked := func() *T {
		r.mu.Lock()
		defer r.mu.Unlock()
		return find()
	}
	if v := locked(); v != nil {
		return v, nil
	}
	select {
	case <-r.whole:
	case <-r.base.Done():
		return nil, errStopped
	case <-ctx.Done():
		return nil, errorf(codes.Unavailable, "sandboxes are being recovered: %v", context.Cause(ctx))
	}
	return locked(), nil
}

func find[T any](all map[string]*T, id string) *T {
	if v := all[id]; v != nil {
		return v
	}
	return byPrefix(all, id)
}

// byPrefix finds the one whose ID begins so; nil if there are several.
func byPrefix[T any](all map[string]*T, prefix string) (found *T) {
	if prefix == "" || len(prefix) >= idLength {
		return nil
	}
	for id, v := range all {
		if strings.HasPrefix(id, prefix) {
			if found != nil {
				return nil
			}
			found = v
		}
	}
	return found
}

// allPods lists the sandboxes, the newest first.
func (r *Runtime) allPods() []*pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*pod, 0, len(r.pods))
	for _, p := range r.pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pod) int {
		if d := b.created - a.created; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

// handler finds the executor of a handler.
func (r *Runtime) handler(name string) (Handler, ociRuntime, error) {
	if name == "" {
		name = r.cfg.DefaultHandler
	}
	h, ok := r.cfg.Handlers[name]
	if !ok {
		return Handler{}, nil, errorf(codes.FailedPrecondition, "no runtime for %.128q is configured", name)
	}
	return h, r.executors[name], nil
}

// Paths. All are made of IDs, so that a leftover names its owner.

func (r *Runtime) rootPath(elements ...string) string {
	return filepath.Join(append([]string{r.cfg.RootDir}, elements...)...)
}

func (r *Runtime) statePath(elements ...string) string {
	return filepath.Join(append([]string{r.cfg.StateDir}, elements...)...)
}

const (
	containersDir = "containers" // of RootDir: by ID, bundle and layer
	sandboxesDir  = "sandboxes"  // of RootDir: by ID, files
	recordsDir    = "records"    // of RootDir
	pauseDir      = "pause"      // of RootDir: the program of infra processes
	programsDir   = "bin"        // of RootDir: monitor programs
	streamsDir    = "c"          // of StateDir: by ID, FIFOs and exit records
	monitorsDir   = "mon"        // of StateDir: package monitor's
	executorsDir  = "run"        // of StateDir: by handler, the OCI runtimes' state
	lockFile      = "lock"

	configFile  = "config.json"
	processFile = "process.json"
)
