package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/numa"
)

// The kubelet's limits.
const (
	callsPerSecond = 100
	callBurst      = 10
)

// PodLister lists the pods about which the pod resources API answers.
type PodLister interface {
	// ActivePods returns the pods that have not ended. The caller does not modify them.
	ActivePods() []*v1.Pod
}

// AssignedDevices returns the devices of containers. [Manager] implements it.
type AssignedDevices interface {
	Holdings(uid types.UID, container string) []Holding
	// Devices returns the healthy devices by resource, each list sorted.
	Devices() map[string][]Device
}

// AssignedCPUs returns the CPUs of containers.
type AssignedCPUs interface {
	// Exclusive returns the CPUs that only this container uses.
	Exclusive(uid types.UID, container string) numa.CPUSet
	// Allocatable returns all CPUs that pods can have.
	Allocatable() numa.CPUSet
}

// AssignedMemory returns the memory that containers have on certain NUMA nodes.
type AssignedMemory interface {
	Blocks(uid types.UID, container string) []MemoryBlock
	Allocatable() []MemoryBlock
}

// PodCPUs is an [AssignedCPUs] with pod-level CPUs (KEP-5526, pod-level resource managers). OfPod
// returns the CPUs of the whole pod, including those of its containers.
type PodCPUs interface {
	AssignedCPUs
	OfPod(uid types.UID) numa.CPUSet
}

// PodMemory is an [AssignedMemory] with pod-level memory. BlocksOfPod returns the memory of the
// whole pod, including that of its containers.
type PodMemory interface {
	AssignedMemory
	BlocksOfPod(uid types.UID) []MemoryBlock
}

// MemoryBlock is memory on some NUMA nodes.
type MemoryBlock struct {
	Type  string // "memory" or "hugepages-2Mi"
	Bytes uint64
	Nodes numa.NodeSet
}

// PreparedClaims returns the devices that containers have through dynamic resource allocation.
// The caller may modify the result.
type PreparedClaims interface {
	Dynamic(pod *v1.Pod, container string) []*api.DynamicResource
}

// PodResourcesConfig configures [PodResources]. Socket and Pods are required; the
// zero value of every other field means the default named beside it.
type PodResourcesConfig struct {
	// Socket is an absolute path. Its directory is created if it does not exist.
	Socket  string
	Pods    PodLister
	Devices AssignedDevices // if nil, the API lists no devices
	CPUs    AssignedCPUs    // if nil, the API lists no CPUs
	Memory  AssignedMemory  // if nil, the API lists no memory
	Claims  PreparedClaims  // if nil, the API lists no claims

	// Ready delays each call until it is closed or the call's context ends. The socket exists
	// earlier, so that early clients can connect. If Ready is nil, no call waits.
	Ready <-chan struct{}

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// PodResources serves the podresources API. It is safe for concurrent use.
type PodResources struct {
	api.UnimplementedPodResourcesListerServer
	cfg   PodResourcesConfig
	met   *podResourcesMetrics
	limit *rate.Limiter
}

// NewPodResources validates cfg and returns a server; call Run to start it.
func NewPodResources(cfg PodResourcesConfig) (*PodResources, error) {
	var errs []error
	if !filepath.IsAbs(cfg.Socket) || len(cfg.Socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("PodResourcesConfig.Socket is %q; want an absolute path of at most %d bytes", cfg.Socket, maxSocketPath))
	}
	if cfg.Pods == nil {
		errs = append(errs, errors.New("PodResourcesConfig.Pods is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podresources: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	met, err := newPodResourcesMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("podresources: %w", err)
	}
	return &PodResources{cfg: cfg, met: met, limit: rate.NewLimiter(callsPerSecond, callBurst)}, nil
}

// Run serves until ctx ends, and returns nil once all calls have returned.
func (s *PodResources) Run(ctx context.Context) error {
	pause := retry.Backoff{First: time.Second, Max: 30 * time.Second}
	for ctx.Err() == nil {
		if err := s.serve(ctx); ctx.Err() == nil {
			s.cfg.Log.Error("failed to serve pod resources", zap.String("socket", s.cfg.Socket), zap.Error(err))
		}
		pause.Wait(ctx)
	}
	return nil
}

func (s *PodResources) serve(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.cfg.Socket), 0o750); err != nil {
		return err
	}
	if info, err := os.Lstat(s.cfg.Socket); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(s.cfg.Socket) // listening returns the error
	}
	l, err := net.Listen("unix", s.cfg.Socket)
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(s.guard))
	api.RegisterPodResourcesListerServer(g, s)
	v1alpha1.RegisterPodResourcesListerServer(g, oldest{s: s})
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	defer g.Stop() // waits for calls
	return g.Serve(l)
}

// guard limits and counts calls.
func (s *PodResources) guard(ctx context.Context, req any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	if !s.limit.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	if s.cfg.Ready != nil {
		select {
		case <-s.cfg.Ready:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	m := s.met.of(info.FullMethod)
	m.total.Inc()
	m.calls.Inc()
	resp, err := call(ctx, req)
	if err != nil {
		m.errors.Inc()
	}
	return resp, err
}
