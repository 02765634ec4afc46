package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	regapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// version is the version of the driver, for GetPluginInfo and for the registration.
const version = "1.0.0"

// Limits of requests. Those of fields are from the CSI specification.
const (
	maxField    = 128     // bytes of a string
	maxMap      = 4 << 10 // bytes of a map's keys and values
	maxPath     = 4 << 10 // bytes of a path (PATH_MAX)
	maxMessage  = 1 << 20 // bytes of a request
	maxStreams  = 64      // calls at a time on one connection
	maxRecords  = 10_000  // volumes, and snapshots
	maxTargets  = 1000    // places where one volume is mounted
	maxDuration = 10 * time.Minute
)

// driver is one process of the driver.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	regapi.UnimplementedRegistrationServer

	name, node, state, registry, dir, sick string
	capacity, maxVolumes                   int64
	attach, mountGroup                     bool
	say                                    func(string)

	mounter mount.Mounter // nil is the kernel's
	disks   disks         // nil are loop devices

	volumes   *store[volume]
	snapshots *store[snapshot]

	mu   sync.Mutex
	busy map[string]bool // IDs that a call is at work on
}

func (d *driver) socket() string { return filepath.Join(d.dir, d.name, "csi.sock") }

// open reads the records, and deletes unfinished data of a process that was killed.
func (d *driver) open() (err error) {
	if d.mounter == nil {
		d.mounter = &mount.Kernel{}
	}
	if d.disks == nil {
		d.disks = loops{}
	}
	if d.say == nil {
		d.say = func(string) {}
	}
	d.busy = map[string]bool{}
	if d.volumes, err = openStore[volume](filepath.Join(d.state, "volumes")); err != nil {
		return err
	}
	if d.snapshots, err = openStore[snapshot](filepath.Join(d.state, "snapshots")); err != nil {
		return err
	}
	for _, v := range d.volumes.all() {
		if v.Disk && v.Staged != nil && !v.Staged.Block {
			_ = d.disks.thaw(v.Staged.Path) // most are not frozen
		}
	}
	return d.sweep()
}

// run serves until ctx ends. It opens the registration socket last, so that the driver
// is ready when the agent finds it.
func (d *driver) run(ctx context.Context, say func(string)) error {
	d.say = say
	if err := d.open(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.socket()), 0o750); err != nil {
		return err
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.UnaryInterceptor(d.around),
	}
	service, registration := grpc.NewServer(options...), grpc.NewServer(options...)
	csi.RegisterIdentityServer(service, d)
	csi.RegisterControllerServer(service, d)
	csi.RegisterNodeServer(service, d)
	regapi.RegisterRegistrationServer(registration, d)
	type server struct {
		*grpc.Server
		socket string
	}
	servers := []server{{service, d.socket()}}
	if d.registry != "" {
		servers = append(servers, server{registration, filepath.Join(d.registry, d.name+"-reg.sock")})
	}
	ended := make(chan error, len(servers))
	for _, s := range servers {
		l, err := listen(s.socket)
		if err != nil {
			service.Stop()
			return err
		}
		go func() { ended <- s.Serve(l) }()
	}
	say("serving on " + d.socket())
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	registration.Stop()
	service.Stop()
	return err
}

// listen removes the socket of an earlier process, and listens at its path.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

// around sets a time limit for each call, and gives every error a status code.
func (d *driver) around(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			resp, err = nil, status.Errorf(codes.Internal, "%s: %v", info.FullMethod, r)
		}
		if err != nil {
			if _, ok := status.FromError(err); !ok {
				err = status.Error(codes.Internal, err.Error())
			}
			d.say(fmt.Sprintf("%s: %v", info.FullMethod, err))
		}
	}()
	return handler(ctx, req)
}

// hold reserves IDs for one call, until release is called.
func (d *driver) hold(ids ...string) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.busy[id] {
			return nil, status.Errorf(codes.Aborted, "another call is at work on %s", id)
		}
	}
	for _, id := range ids {
		d.busy[id] = true
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, id := range ids {
			delete(d.busy, id)
		}
	}, nil
}

// GetInfo returns the driver's registration data.
func (d *driver) GetInfo(context.Context, *regapi.InfoRequest) (*regapi.PluginInfo, error) {
	return &regapi.PluginInfo{Type: regapi.CSIPlugin, Name: d.name, Endpoint: d.socket(), SupportedVersions: []string{version}}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (d *driver) NotifyRegistrationStatus(_ context.Context, st *regapi.RegistrationStatus) (*regapi.RegistrationStatusResponse, error) {
	if st.GetPluginRegistered() {
		d.say("registered")
	} else {
		d.say("not registered: " + st.GetError())
	}
	return &regapi.RegistrationStatusResponse{}, nil
}

// GetPluginInfo returns the name and the version of the driver.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

// GetPluginCapabilities returns the capabilities of the driver: a controller
// service, topology, and expansion of volumes in use.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	resp := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}},
		})
	}
	resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}})
	return resp, nil
}

// Probe returns ready: the driver has read its records before it serves.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
