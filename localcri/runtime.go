//go:build linux

package localcri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/checkpoint"
)

// Runtime implements the CRI's RuntimeService. It is safe for concurrent use. Calls wait until
// Run has read the records, or until their contexts end. Errors are gRPC statuses.
type Runtime struct {
	cfg Config
	parts
	log *zap.Logger

	loaded   chan struct{} // closed when the records are read
	whole    chan struct{} // closed when every sandbox of an earlier process is recovered
	over     chan struct{} // closed when Run has returned
	began    atomic.Bool
	base     context.Context // context of all work; set before loaded is closed
	begins   sync.Mutex      // held while work is started
	work     sync.WaitGroup  // work that was started with base
	events   *broadcaster
	refusals *prometheus.CounterVec // by phase and event
	execs    atomic.Uint64          // number of the last exec
	outputs  atomic.Int64           // bytes that ExecSync holds for callers without a small limit

	sandboxRecords   *checkpoint.Store
	containerRecords *checkpoint.Store

	mu         sync.Mutex // guards the fields below; never held during I/O
	pods       map[string]*pod
	labelled   map[string]map[*pod]int // see label
	names      map[string]*pod         // by the key of their metadata
	containers map[string]*container   // containers of all pods
	erasing    map[string]bool         // containers that are not in the tables any more, but still have files
	podCIDR    string                  // from UpdateRuntimeConfig
}

// New validates cfg, checks the machine, and returns a Runtime. It changes nothing. If cfg is
// invalid or the machine lacks something, the error has all reasons.
func New(cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("localcri: %w", err)
	}
	r := &Runtime{
		cfg: cfg, parts: cfg.parts, log: cfg.Log,
		loaded: make(chan struct{}), whole: make(chan struct{}), over: make(chan struct{}),
		pods: map[string]*pod{}, labelled: map[string]map[*pod]int{}, names: map[string]*pod{}, containers: map[string]*container{}, erasing: map[string]bool{},
	}
	r.events = newBroadcaster()
	r.refusals = newRefusals()
	r.execs.Store(uint64(mathrand.Uint32())) // commands of an earlier process may still use earlier numbers
	if err := r.assemble(); err != nil {
		return nil, fmt.Errorf("localcri: %w", err)
	}
	return r, nil
}

// Run recovers existing containers, and works until ctx ends. It may be called once. Containers
// and their monitors continue when Run returns. Run returns an error if the directories cannot be
// used. If another process uses them, the error names that process.
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
	if r.cfg.Hooks != nil {
		r.do(r.runHooks)
	}
	<-ctx.Done()
	r.awaitWork()
	r.events.close()
	r.disconnect()
	return nil
}

// awaitWork waits a short time for running work. Work that is blocked by a disk is finished by
// the next process.
func (r *Runtime) awaitWork() {
	const timeout = 10 * time.Second
	r.begins.Lock()   // base has ended: work that starts from here on is not waited for
	r.begins.Unlock() //nolint:staticcheck // only the order matters
	done := make(chan struct{})
	go func() {
		r.work.Wait()
		close(done)
	}()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		r.log.Warn("gave up waiting for running work", zap.Duration("waited", timeout))
	}
}

// Ready returns a channel that is closed when everything that existed at the start is recovered.
// Other calls need not wait for it: each waits only for the recovery of its own sandbox or
// container.
func (r *Runtime) Ready() <-chan struct{} { return r.whole }

// disconnect closes the connections to the monitors, which continue.
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

// await waits until the records are read.
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

// do runs work of the runtime in the background. Its context outlives callers.
func (r *Runtime) do(f func(ctx context.Context)) {
	r.begins.Lock()
	defer r.begins.Unlock()
	if r.base.Err() != nil { // Run may already be waiting for the end of all work: this work sees that base has ended
		go f(r.base)
		return
	}
	r.work.Go(func() { f(r.base) })
}

// newID returns a new ID for a sandbox or container.
func newID() string {
	b := make([]byte, idLength/2)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// podKey returns a key that is unique for each sandbox.
func podKey(m *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
}

func containerKey(m *runtimeapi.ContainerMetadata) string {
	return m.GetName() + "_" + fmt.Sprint(m.GetAttempt())
}

// lookPod returns a sandbox by its ID, and waits for its recovery. id may be the first digits of
// an ID if they are unique.
func (r *Runtime) lookPod(ctx context.Context, id string) (*pod, error) {
	p, err := r.goingPod(ctx, id)
	if err == nil && !p.visible() {
		return nil, notFound("sandbox", id)
	}
	return p, err
}

// goingPod does the same as lookPod, but also finds sandboxes that are being removed, so that a
// second removal can wait for the first one.
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

// lookContainer is lookPod for a container.
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

// look returns the result of find. If find returns nil, look waits for all recoveries and calls
// it again, since a monitor may have the only copy of the record.
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

// byPrefix returns the object whose ID begins with prefix. It returns nil if no object or several
// have such an ID.
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

// labelPodUID is the label by which an agent lists the sandboxes and containers of one
// pod.
const labelPodUID = "io.kubernetes.pod.uid"

// label adds n to the number of objects that have these labels: the sandbox and its
// containers count. With these numbers, the objects of one pod are found without a search of
// all sandboxes. The caller holds r.mu.
func (r *Runtime) label(p *pod, labels map[string]string, n int) {
	uid, ok := labels[labelPodUID]
	if !ok {
		return
	}
	of := r.labelled[uid]
	if of == nil {
		of = map[*pod]int{}
		r.labelled[uid] = of
	}
	if of[p] += n; of[p] == 0 {
		delete(of, p)
	}
	if len(of) == 0 {
		delete(r.labelled, uid)
	}
}

// allPods returns the sandboxes, newest first.
func (r *Runtime) allPods() []*pod { return r.selected(nil) }

// selected returns the sandboxes, newest first, in which the sandbox or a container may have the
// labels of a selector.
func (r *Runtime) selected(selector map[string]string) []*pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*pod
	if uid, ok := selector[labelPodUID]; ok {
		for p := range r.labelled[uid] {
			out = append(out, p)
		}
	} else {
		out = slices.AppendSeq(make([]*pod, 0, len(r.pods)), maps.Values(r.pods))
	}
	slices.SortFunc(out, func(a, b *pod) int {
		if d := b.created - a.created; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

// handler returns the configured handler of that name, or the default one for "", and its OCI
// runtime.
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

// Names of directories. Paths below them contain IDs, so that each leftover can be
// attributed.

func (r *Runtime) rootPath(elements ...string) string {
	return filepath.Join(append([]string{r.cfg.RootDir}, elements...)...)
}

func (r *Runtime) statePath(elements ...string) string {
	return filepath.Join(append([]string{r.cfg.StateDir}, elements...)...)
}

const (
	containersDir = "containers" // in RootDir: bundle and layer, by ID
	sandboxesDir  = "sandboxes"  // in RootDir: files, by ID
	recordsDir    = "records"    // in RootDir
	pauseDir      = "pause"      // in RootDir: the program of infra processes
	programsDir   = "bin"        // in RootDir: monitor programs
	streamsDir    = "c"          // in StateDir: FIFOs and exit records, by ID
	monitorsDir   = "mon"        // in StateDir: for package monitor
	executorsDir  = "run"        // in StateDir: state of the OCI runtimes, by handler
	lockFile      = "lock"

	configFile  = "config.json"
	processFile = "process.json"
)
