// Package csitest has a CSI driver for tests of who calls drivers: a gRPC server of
// this process, at a unix socket, that stages and publishes volumes on a mount table
// in memory, and that fails, hangs, lies or dies at whatever call a test says.
//
// It keeps account of what the CSI specification forbids a caller: see
// [Driver.Violations].
package csitest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Capabilities of the Node service.
const (
	Stage       = spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	Stats       = spec.NodeServiceCapability_RPC_GET_VOLUME_STATS
	Expand      = spec.NodeServiceCapability_RPC_EXPAND_VOLUME
	Health      = spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH
	MultiWriter = spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
	MountGroup  = spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
)

// Fault is what goes wrong with a call.
type Fault struct {
	// Err is the answer, in place of the call's effect; After it with After. Code
	// makes one of a code alone.
	Err   error
	After bool
	// Lie answers that all is well and does nothing.
	Lie bool
	// Hang is waited for before anything else, whatever becomes of the caller.
	Hang <-chan struct{}
}

// Code is a Fault that answers with a code.
func Code(code codes.Code) Fault { return Fault{Err: status.Error(code, "injected fault")} }

// Config defines what a Driver is like. Socket is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	Socket       string
	NodeID       string // "node-1"
	Capabilities []spec.NodeServiceCapability_RPC_Type
	Topology     map[string]string // none
	Limit        int64
	// Attaches has the driver's controller attach volumes.
	Attaches bool
	// Mounter is where volumes are mounted; they are directories alone.
	Mounter mount.Mounter
	// Disks are what they are on; what is mounted is a tmpfs, and block devices are
	// empty files.
	Disks Disks
	// Fault is asked before each call, one at a time; nothing goes wrong.
	Fault func(method string, req proto.Message) Fault
	// Latency is how long each call takes at least; no time.
	Latency time.Duration
	// Listen makes what the driver serves on, each time that it starts; a unix
	// socket at Socket.
	Listen func() (net.Listener, error)
}

// Driver is one. Its methods may be called from any goroutine.
type Driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	spec.UnimplementedNodeServer

	cfg    Config
	server *grpc.Server
	served sync.WaitGroup

	asking sync.Mutex // of Fault

	mu         sync.Mutex
	staged     map[string]string            // path by volume
	published  map[string]map[string]string // volumes by path, of a volume
	busy       map[string]string            // method by volume
	boot       int                          // counts Reboot
	calls      []Call
	violations []string
	volume     *spec.NodeGetVolumeStatsResponse
	health     *spec.VolumeHealth
	limit      int64
}

// Call is one that was made.
type Call struct {
	Method  string
	Request proto.Message
}

// Start serves a driver until Stop.
func Start(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.Socket) {
		return nil, fmt.Errorf("csitest: Config.Socket is %q; want an absolute path", cfg.Socket)
	}
	if cfg.NodeID == "" {
		cfg.NodeID = "node-1"
	}
	d := &Driver{
		cfg: cfg, staged: map[string]string{}, published: map[string]map[string]string{}, busy: map[string]string{}, limit: cfg.Limit,
		volume: &spec.NodeGetVolumeStatsResponse{},
	}
	return d, d.Restart()
}

// Restart serves at the socket again after Stop. Volumes that were staged and
// published before still are.
func (d *Driver) Restart() error {
	l, err := d.listen()
	if err != nil {
		return err
	}
	d.server = grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	spec.RegisterIdentityServer(d.server, d)
	spec.RegisterControllerServer(d.server, d)
	spec.RegisterNodeServer(d.server, d)
	d.served.Go(func() { _ = d.server.Serve(l) })
	return nil
}

func (d *Driver) listen() (net.Listener, error) {
	if d.cfg.Listen != nil {
		return d.cfg.Listen()
	}
	if err := os.Remove(d.cfg.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", d.cfg.Socket)
}

// Stop ends the server as a process dies: calls under way break off.
func (d *Driver) Stop() {
	d.server.Stop()
	d.served.Wait()
}

// intercept makes the faults, and the account.
func (d *Driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	m, method := req.(proto.Message), filepath.Base(info.FullMethod)
	d.mu.Lock()
	d.calls = append(d.calls, Call{method, m})
	boot := d.boot
	d.mu.Unlock()
	if v, ok := req.(volumeRequest); ok && method != "NodeGetVolumeStats" && method != "NodeGetVolumeHealth" {
		defer d.alone(v.GetVolumeId(), method)()
	}
	var f Fault
	if d.cfg.Fault != nil {
		d.asking.Lock()
		f = d.cfg.Fault(method, m)
		d.asking.Unlock()
	}
	if f.Hang != nil {
		<-f.Hang
	}
	if d.cfg.Latency > 0 {
		time.Sleep(d.cfg.Latency)
	}
	switch {
	case d.rebooted(boot):
		return nil, status.Error(codes.Unavailable, "the driver has gone with its machine")
	case f.Lie:
		return lie(method), nil
	case f.Err != nil && !f.After:
		return nil, f.Err
	}
	resp, err := handle(ctx, req)
	if f.Err != nil {
		return nil, f.Err
	}
	return resp, err
}

// lie is an answer that says nothing.
func lie(method string) proto.Message {
	switch method {
	case "NodeStageVolume":
		return &spec.NodeStageVolumeResponse{}
	case "NodeUnstageVolume":
		return &spec.NodeUnstageVolumeResponse{}
	case "NodePublishVolume":
		return &spec.NodePublishVolumeResponse{}
	case "NodeUnpublishVolume":
		return &spec.NodeUnpublishVolumeResponse{}
	case "NodeExpandVolume":
		return &spec.NodeExpandVolumeResponse{}
	case "NodeGetInfo":
		return &spec.NodeGetInfoResponse{}
	case "NodeGetVolumeStats":
		return &spec.NodeGetVolumeStatsResponse{}
	}
	return &spec.NodeGetCapabilitiesResponse{}
}

// alone notes that a call about a volume is under way, and when another is.
func (d *Driver) alone(volume, method string) (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.busy[volume]; other != "" {
		d.violate("%s of %s while %s of it is under way", method, volume, other)
		return func() {}
	}
	d.busy[volume] = method
	boot := d.boot
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.boot == boot {
			delete(d.busy, volume)
		}
	}
}

// rebooted reports whether the machine was rebooted since that boot: what was called
// before has no effect any more.
func (d *Driver) rebooted(since int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boot != since
}

func (d *Driver) violate(format string, args ...any) {
	d.violations = append(d.violations, fmt.Sprintf(format, args...))
}

// Violations are what callers did that they must not: calls about one volume at the
// same time, a publication of what is not staged, an end of the stage of what is
// published, a volume published twice at one path with different requests.
func (d *Driver) Violations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.violations)
}

// Calls are those that were made, in order.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Count is how many calls of a method were made.
func (d *Driver) Count(method string) (n int) {
	for _, c := range d.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// Forget has Calls begin anew.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Staged are the paths of what is staged, by volume.
func (d *Driver) Staged() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.staged)
}

// Published are the paths at which volumes are published, sorted, by volume.
func (d *Driver) Published() map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string][]string{}
	for v, paths := range d.published {
		out[v] = slices.Sorted(maps.Keys(paths))
	}
	return out
}

// Reboot forgets what is staged and published, as a machine does that goes down. What
// is mounted has to be gone.
func (d *Driver) Reboot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.cfg.Disks != nil {
		for _, volume := range slices.Concat(slices.Collect(maps.Keys(d.staged)), slices.Collect(maps.Keys(d.published))) {
			err = errors.Join(err, d.cfg.Disks.Detach(volume))
		}
	}
	clear(d.staged)
	clear(d.published)
	clear(d.busy)
	d.boot++
	return err
}

// SetStats is what NodeGetVolumeStats answers.
func (d *Driver) SetStats(r *spec.NodeGetVolumeStatsResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volume = r
}

// SetHealth is what NodeGetVolumeHealth answers.
func (d *Driver) SetHealth(h *spec.VolumeHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = h
}

// SetLimit is the limit that NodeGetInfo answers.
func (d *Driver) SetLimit(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = n
}

// volumeRequest is a request about one volume.
type volumeRequest interface{ GetVolumeId() string }
