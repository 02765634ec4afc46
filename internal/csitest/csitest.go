// Package csitest has a CSI driver for tests of programs that call one. The driver is a
// gRPC server of this process on a unix socket. It stages and publishes volumes with the
// Mounter of its Config. A test can make any call fail, hang or return success without
// effect, and can stop the driver.
//
// The driver records calls that the CSI specification forbids: see [Driver.Violations].
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

// Fault changes one call. Its zero value changes nothing.
type Fault struct {
	// Err is the error that the call returns. If After is true, the driver first carries the call
	// out. Otherwise the call has no effect.
	Err   error
	After bool
	// Lie makes the call return success without an effect.
	Lie bool
	// Hang delays the call until the channel is closed, even if the caller's
	// context ends.
	Hang <-chan struct{}
}

// Code returns a Fault that makes a call fail with a status code, before the call has any effect.
func Code(code codes.Code) Fault { return Fault{Err: status.Error(code, "injected fault")} }

// Config configures a Driver. Socket is required. Every other field has a default for its zero
// value.
type Config struct {
	Socket       string
	NodeID       string // "node-1"
	Capabilities []spec.NodeServiceCapability_RPC_Type
	Topology     map[string]string // if nil, the driver has no topology
	Limit        int64             // maximum number of volumes on the node; see SetLimit
	// Attaches is true if the controller attaches volumes to nodes before NodeStageVolume.
	Attaches bool
	// Mounter mounts the volumes. If it is nil, nothing is mounted.
	Mounter mount.Mounter
	// Disks are the devices of the volumes. If it is nil, mounts are tmpfs, and block devices are
	// empty files.
	Disks Disks
	// Fault is called before each call and returns the call's fault. Calls of Fault do not
	// overlap. If Fault is nil, there are no faults.
	Fault func(method string, req proto.Message) Fault
	// Latency is the minimum duration of each call. The default is 0.
	Latency time.Duration
	// Listen returns the listener of the server. It is called by Start and Restart. If it is nil,
	// the server listens on a unix socket at Socket.
	Listen func() (net.Listener, error)
}

// Driver is a CSI driver. Its methods may be called from any goroutine.
type Driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	spec.UnimplementedNodeServer

	cfg    Config
	server *grpc.Server
	served sync.WaitGroup

	asking sync.Mutex // held during calls of Config.Fault

	mu         sync.Mutex
	staged     map[string]string            // staging path by volume
	published  map[string]map[string]string // by volume and target path: the request as text
	busy       map[string]string            // by volume: the method of the running call
	boot       int                          // number of Reboots
	calls      []Call
	violations []string
	volume     *spec.NodeGetVolumeStatsResponse
	health     *spec.VolumeHealth
	limit      int64
}

// Call is a call that the driver has received.
type Call struct {
	Method  string
	Request proto.Message
}

// Start starts a driver, which serves until Stop.
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

// Restart starts the server again after Stop. Volumes stay staged and published.
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

// Stop stops the server as if its process had died: running calls fail.
func (d *Driver) Stop() {
	d.server.Stop()
	d.served.Wait()
}

// intercept applies the configured faults to a call, and records the call.
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
		return nil, status.Error(codes.Unavailable, "the machine was rebooted")
	case f.Lie:
		return emptyResponse(method), nil
	case f.Err != nil && !f.After:
		return nil, f.Err
	}
	resp, err := handle(ctx, req)
	if f.Err != nil {
		return nil, f.Err
	}
	return resp, err
}

// emptyResponse returns an empty response of a method.
func emptyResponse(method string) proto.Message {
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

// alone records the start of a call for a volume, and a violation if another call for
// the volume is running. The caller calls done at the end of the call.
func (d *Driver) alone(volume, method string) (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.busy[volume]; other != "" {
		d.violate("%s of volume %s is called while its %s is running", method, volume, other)
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

// rebooted reports whether Reboot was called since d.boot had the value since. A call
// that began before a reboot must have no effect.
func (d *Driver) rebooted(since int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boot != since
}

func (d *Driver) violate(format string, args ...any) {
	d.violations = append(d.violations, fmt.Sprintf(format, args...))
}

// Violations returns the violations of the CSI specification by callers. The driver
// detects these:
//
//   - calls for one volume at the same time
//   - a second stage of a volume at another path
//   - a publication of a volume that is not staged
//   - an unstage of a volume that is published
//   - two publications of a volume at one path with different requests
func (d *Driver) Violations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.violations)
}

// Calls returns the calls since the start or the last Forget, in order.
func (d *Driver) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Count returns the number of calls of a method.
func (d *Driver) Count(method string) (n int) {
	for _, c := range d.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// Forget clears the record of calls that Calls returns.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Staged returns the staging paths by volume.
func (d *Driver) Staged() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.staged)
}

// Published returns the sorted target paths by volume.
func (d *Driver) Published() map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string][]string{}
	for v, paths := range d.published {
		out[v] = slices.Sorted(maps.Keys(paths))
	}
	return out
}

// Reboot simulates a reboot of the machine: no volume is staged or published afterwards,
// and running calls have no effect. The caller has to unmount the volumes first.
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

// SetStats sets the result of NodeGetVolumeStats.
func (d *Driver) SetStats(r *spec.NodeGetVolumeStatsResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volume = r
}

// SetHealth sets the result of NodeGetVolumeHealth.
func (d *Driver) SetHealth(h *spec.VolumeHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = h
}

// SetLimit sets the volume limit that NodeGetInfo returns.
func (d *Driver) SetLimit(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = n
}

// volumeRequest is a request about one volume.
type volumeRequest interface{ GetVolumeId() string }
