//go:build linux

package localcri

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// pod is one sandbox. Fields above mu never change.
type pod struct {
	rt      *Runtime
	id      string
	key     string
	created int64
	config  *runtimeapi.PodSandboxConfig
	handler string // "" means the default
	known   chan struct{}
	claim   *claim // the sandbox's creation; nil if an earlier process created it
	saver   *saver

	mu         sync.Mutex   // never held during I/O
	life       life.Sandbox // changed only by applyLocked
	told       hookStage    // what the hooks have heard
	record     sandboxFacts
	containers map[string]*container
	names      map[string]*container // by the key of their metadata
	monitor    monitorConn           // nil if there is none
	following  following

	// Operations in progress, on which callers wait. Whether an operation may begin is decided by
	// life only.
	launching *op
	resolving *op // finds out what became of the containers of a lost monitor
	stop      *op
	removal   *op // the sandbox's removal, up to the point where callers consider it removed
}

func newPod(rt *Runtime, record sandboxFacts, l life.Sandbox, config *runtimeapi.PodSandboxConfig) *pod {
	return &pod{
		rt: rt, id: record.ID, key: podKey(config.GetMetadata()), created: record.Created, config: config, handler: record.Handler,
		known: make(chan struct{}), saver: newSaver(), life: l, told: toldBefore(l.Phase()), record: record,
		containers: map[string]*container{}, names: map[string]*container{},
	}
}

// await waits until the recovery of a sandbox from an earlier process has finished.
func (p *pod) await(ctx context.Context) error {
	select {
	case <-p.known:
		return nil
	default:
	}
	select {
	case <-p.known:
		return nil
	case <-p.rt.base.Done():
		return errStopped
	case <-ctx.Done():
		return errorf(codes.Unavailable, "sandbox %s is being recovered: %v", p.id, context.Cause(ctx))
	}
}

// visible reports whether callers may see the sandbox.
func (p *pod) visible() bool {
	if p.claim != nil && !p.claim.isDelivered() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.Shown()
}

// going reports whether the sandbox is being removed or gone. For callers it does not exist any
// more.
func (p *pod) going() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.Going()
}

func (p *pod) options() *runtimeapi.NamespaceOption {
	return p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (p *pod) hostNetwork() bool { return p.options().GetNetwork() == runtimeapi.NamespaceMode_NODE }

// sharedPID reports whether the sandbox has an infra process. It has one only if its containers
// share a PID namespace.
func (p *pod) sharedPID() bool { return p.options().GetPid() == runtimeapi.NamespaceMode_POD }

// readyLocked returns nil if containers may be created and started in the sandbox, and otherwise
// the reason. The result is computed at each call, and not recorded. The caller holds p.mu.
func (p *pod) readyLocked() error {
	fail := func(why string) error {
		return errorf(codes.FailedPrecondition, "sandbox %s is not ready: %s", p.id, why)
	}
	switch {
	case p.life.Going():
		return fail("it is removed")
	case p.life.Phase() != life.Ready:
		return fail("it is stopped")
	case p.record.Boot != p.rt.cfg.BootID:
		return fail(messageRestarted)
	case p.life.InfraDead():
		return fail("the process of its shared PID namespace ended")
	}
	if !p.hostNetwork() {
		if _, ok := p.rt.cfg.Network.Get(p.id); !ok {
			return fail("its network namespace is gone")
		}
	}
	return nil
}

func (p *pod) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readyLocked()
}

// recordLocked returns the record to write. The caller holds p.mu.
func (p *pod) recordLocked() sandboxRecord { return sandboxRecord{p.record, p.life.Record()} }

// save writes the record.
func (p *pod) save(ctx context.Context) error {
	return p.saver.save(ctx, p.rt.sandboxRecords, p.id, func() []byte {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.life.Phase() == life.Gone {
			return nil
		}
		return encode(p.recordLocked())
	})
}

// keepRecord writes the record in the background.
func (p *pod) keepRecord(ctx context.Context) {
	ctx, cancel := contextForWrite(ctx)
	defer cancel()
	if err := p.save(ctx); err != nil {
		p.rt.log.Warn("failed to write record of sandbox", zap.String("sandbox", p.id), zap.Error(err))
	}
}

// listLocked returns the containers in the order of their creation. The caller holds p.mu.
func (p *pod) listLocked() []*container {
	out := slices.Collect(maps.Values(p.containers))
	slices.SortFunc(out, func(a, b *container) int {
		if d := a.created - b.created; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

func (p *pod) list() []*container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listLocked()
}

// stateLocked returns the CRI's state of the sandbox. The caller holds p.mu.
func (p *pod) stateLocked() runtimeapi.PodSandboxState {
	if p.readyLocked() == nil {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// statusLocked returns the sandbox's CRI status. The parts that it shares with p are never
// modified.
func (p *pod) statusLocked() *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: p.id, Metadata: p.config.GetMetadata(), State: p.stateLocked(), CreatedAt: p.created,
		Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), RuntimeHandler: p.handler,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: p.options()}},
	}
	// A pod without an address has no network status. An empty one would say that
	// the sandbox lost its address, and callers would replace the sandbox.
	for i, ip := range p.record.IPs {
		if i == 0 {
			out.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ip}
			continue
		}
		out.Network.AdditionalIps = append(out.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return out
}

// status returns the status of the sandbox and its containers. The caller may modify them.
func (p *pod) status() (*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := proto.Clone(p.statusLocked()).(*runtimeapi.PodSandboxStatus)
	var all []*runtimeapi.ContainerStatus
	for _, c := range p.listLocked() {
		if c.shownLocked() {
			all = append(all, proto.Clone(c.statusLocked()).(*runtimeapi.ContainerStatus))
		}
	}
	return s, all
}
