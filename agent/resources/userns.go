package resources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// UserNamespacesConfig configures [UserNamespaces].
type UserNamespacesConfig struct {
	// Store stores the ranges over a restart of the agent. Required: otherwise a range could be
	// given to a second pod.
	Store part.Store
	// IDsPerPod is the length of a range (userNamespaces.idsPerPod), a multiple of 65536. The
	// default is 65536. Existing pods keep their ranges.
	IDsPerPod uint32
	// First and Count select the IDs for ranges. Both are multiples of IDsPerPod, and First is
	// not 0. If both are 0, all IDs except the first IDsPerPod are used. [SubIDs] returns the IDs
	// that the machine reserves for a user.
	First, Count uint32
	// MaxPods is the number of pods for which ranges are needed. If there are fewer ranges,
	// NewUserNamespaces returns an error. If MaxPods is 0, this is not checked.
	MaxPods int
	// Log gets errors about records that are damaged or cannot be removed. If it is nil, nothing
	// is logged.
	Log *zap.Logger
}

// UserNamespaces is the part that allocates a range of the node's user and group IDs to
// each pod with its own user namespace (hostUsers: false, KEP-127).
//
//	p, err := resources.NewUserNamespaces(resources.UserNamespacesConfig{Store: part.OpenStore(dir, log)})
//
// A range has UserNamespacesConfig.IDsPerPod IDs, 65536 of them by default. The first 65536 IDs
// belong to the node. A pod gets the lowest free range. It keeps the range until the pod is gone,
// over restarts of the agent and changes of the configuration, since its files belong to these IDs.
// [SubIDs] returns the IDs that the machine reserves for pods.
//
// # Hooks
//
// part.Preparer allocates a range before the pod's sandbox is created. part.Compiler
// passes it to the runtime; it reads only memory. part.Sweeper releases the ranges of
// pods that are gone.
//
// # Ownership
//
// The store has a record for each pod that has a range. Its key contains the pod's UID
// and the range, so that a damaged record can be restored from its key. The store is
// read when the first such pod comes, or at the first sweep. It is called by goroutines
// for which [UserNamespaces.Run] waits, at most one for each pod. No lock is held
// during these calls.
//
// # Faults
//
// A write that hangs delays only its own pod. If the pod's sync ends first, the pod
// keeps its range, and the next sync waits for the same write. If a write fails, the
// sync fails. No pod gets a range before the stored ranges have been read. A damaged
// record is written again, from its key. Records of an earlier version have only the
// pod's UID as their key: if one is damaged, its range is unknown. Until that pod is
// gone, new pods get the highest ranges, since the unknown range is among the lowest.
type UserNamespaces struct {
	cfg   UserNamespacesConfig
	space space
	host  part.Host // set by Join
	calls sync.WaitGroup

	mu      sync.Mutex // not held during calls of the store
	ended   bool
	loading *userIDsOp
	ranges  *ranges // nil until they have been read
}

var (
	_ part.Joiner   = (*UserNamespaces)(nil)
	_ part.Runner   = (*UserNamespaces)(nil)
	_ part.Preparer = (*UserNamespaces)(nil)
	_ part.Compiler = (*UserNamespaces)(nil)
	_ part.Sweeper  = (*UserNamespaces)(nil)
)

// NewUserNamespaces checks cfg and returns a part.
func NewUserNamespaces(cfg UserNamespacesConfig) (*UserNamespaces, error) {
	if cfg.Store == nil {
		return nil, errors.New("userns: UserNamespacesConfig.Store is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	space, err := cfg.space()
	if err != nil {
		return nil, err
	}
	return &UserNamespaces{cfg: cfg, space: space}, nil
}

// space returns the IDs that pods may have.
func (c UserNamespacesConfig) space() (space, error) {
	length := cmp.Or(c.IDsPerPod, block)
	if length%block != 0 {
		return space{}, fmt.Errorf("userns: UserNamespacesConfig.IDsPerPod is %d; want a multiple of %d", c.IDsPerPod, block)
	}
	s := defaultSpace(length)
	if c.First != 0 || c.Count != 0 {
		s.first, s.end = uint64(c.First), uint64(c.First)+uint64(c.Count)
		if c.First == 0 || c.First%length != 0 || c.Count%length != 0 || s.end > 1<<32 {
			return space{}, fmt.Errorf("userns: UserNamespacesConfig.Count is %d and First %d; want multiples of %d, First not 0, and IDs up to %d", c.Count, c.First, length, uint64(1)<<32)
		}
	}
	if s.count() < uint64(max(c.MaxPods, 0)) {
		return space{}, fmt.Errorf("userns: there are IDs for %d pods, of %d each; want IDs for %d pods", s.count(), length, c.MaxPods)
	}
	return s, nil
}

// Name implements part.Part.
func (*UserNamespaces) Name() string { return "userns" }

// Join implements part.Joiner.
func (p *UserNamespaces) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Run implements part.Runner: it returns when ctx has ended and no call of the store is running,
// which may wait for a disk.
func (p *UserNamespaces) Run(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.calls.Wait()
	return nil
}

// own reports whether the pod has its own user namespace.
func own(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Prepare implements part.Preparer. It allocates a range for the pod, if the pod has none. Its
// error counts as a failure to create the sandbox.
func (p *UserNamespaces) Prepare(ctx context.Context, pod *v1.Pod, _ *observed.Pod) error {
	if !own(pod) {
		return nil
	}
	err := p.take(ctx, pod.UID)
	if err == nil || ctx.Err() != nil {
		return err
	}
	eventType, reason, message := podlife.Cause{Kind: podlife.SandboxFailed, Message: err.Error()}.Event()
	p.host.Event(pod, nil, eventType, reason, message)
	return podlife.WithReason(podlife.SandboxFailed.Reason(), err)
}

// Compile implements part.Compiler. If the pod has no range, podspec reports that.
func (p *UserNamespaces) Compile(pod *v1.Pod, in *podspec.Input) error {
	if !own(pod) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ranges == nil {
		return nil
	}
	if r := p.ranges.of[pod.UID]; r != nil && r.saved {
		in.UserNamespace = &podspec.IDRange{First: r.first, Length: r.length}
	}
	return nil
}
