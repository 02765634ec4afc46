package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plugin whose devices are the files of a directory.
type plugin struct {
	api.UnimplementedDevicePluginServer
	resource, devices, sockets string
	cdi                        string // directory of the runtime's CDI specifications; "" for none

	mu      sync.Mutex
	seen    map[string]bool // all devices seen so far; false if the file was removed
	changed chan struct{}   // closed and replaced when the devices change
}

// socket is the name of the plugin's socket in the agent's directory of sockets.
const socket = "example-deviceplugin.sock"

// run serves until ctx ends. When the agent starts, it removes the sockets of all plugins;
// run then creates the socket and registers again.
func (p *plugin) run(ctx context.Context, tell func(string)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := errors.Join(w.Add(p.sockets), w.Add(p.devices)); err != nil {
		return err
	}
	p.changed = make(chan struct{})
	if err := p.look(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := p.serve(ctx, w, tell); err != nil {
			return err
		}
	}
	return nil
}

// serve registers and serves at the socket until the socket is removed or ctx ends.
func (p *plugin) serve(ctx context.Context, w *fsnotify.Watcher, tell func(string)) error {
	path := filepath.Join(p.sockets, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer s.Stop()
	registered := false
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	for {
		if !registered {
			if err := p.register(ctx); err == nil {
				registered = true
				tell("registered " + p.resource)
			} else if ctx.Err() == nil {
				tell("not registered: " + err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case err := <-w.Errors:
			return err
		case <-retry.C:
		case <-w.Events:
			if err := p.look(); err != nil {
				return err
			}
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			tell("the agent has restarted")
			return nil
		}
	}
}

func (p *plugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.sockets, filepath.Base(api.KubeletSocket)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: p.resource,
	})
	return err
}

// look reads the directory of the devices and wakes ListAndWatch.
func (p *plugin) look() error {
	entries, err := os.ReadDir(p.devices)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.seen {
		now[id] = false
	}
	for _, e := range entries {
		now[e.Name()] = true
	}
	if err := p.describe(now); err != nil {
		return err
	}
	p.seen = now
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

func (p *plugin) list() (*api.ListAndWatchResponse, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &api.ListAndWatchResponse{}
	for id, there := range p.seen {
		d := &api.Device{ID: id, Health: api.Unhealthy}
		if there {
			d.Health = api.Healthy
		}
		if _, node, ok := strings.Cut(id, "@"); ok {
			if n, err := strconv.ParseInt(node, 10, 64); err == nil {
				d.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: n}}}
			}
		}
		resp.Devices = append(resp.Devices, d)
	}
	return resp, p.changed
}

// GetDevicePluginOptions returns no options: the plugin implements no optional calls.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends all devices at once, and again after each change of the directory.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		list, changed := p.list()
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate returns the variable DEVICES, and the mounts or device nodes, for each container.
func (p *plugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	resp := &api.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		out := &api.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": strings.Join(c.GetDevicesIds(), ",")}}
		for _, id := range c.GetDevicesIds() {
			path := filepath.Join(p.devices, filepath.Base(id))
			info, err := os.Stat(path)
			switch {
			case err != nil:
				return nil, fmt.Errorf("device %q: %w", id, err)
			case info.Mode()&fs.ModeDevice != 0:
				out.Devices = append(out.Devices, &api.DeviceSpec{ContainerPath: "/dev/things/" + id, HostPath: path, Permissions: "rw"})
			default:
				out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: "/dev/things/" + id, HostPath: path})
			}
			if p.cdi != "" {
				out.CdiDevices = append(out.CdiDevices, &api.CDIDevice{Name: p.resource + "=" + cdiName(id)})
			}
		}
		resp.ContainerResponses = append(resp.ContainerResponses, out)
	}
	return resp, nil
}
