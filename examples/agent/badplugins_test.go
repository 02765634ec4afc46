package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// badPlugin is a device plugin that does what it should not.
type badPlugin struct {
	api.UnimplementedDevicePluginServer
	list     func(send func(*api.ListAndWatchResponse) error) error
	allocate func(ctx context.Context) error
}

func (b *badPlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (b *badPlugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := b.list(s.Send); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (b *badPlugin) Allocate(ctx context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	if err := b.allocate(ctx); err != nil {
		return nil, err
	}
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs: map[string]string{"FROM": "a bad plugin"},
	}}}, nil
}

// some is a list of n devices.
func some(n int, health string) *api.ListAndWatchResponse {
	out := &api.ListAndWatchResponse{}
	for i := range n {
		out.Devices = append(out.Devices, &api.Device{ID: fmt.Sprintf("device-%05d", i), Health: health})
	}
	return out
}

func lists(n int) func(func(*api.ListAndWatchResponse) error) error {
	return func(send func(*api.ListAndWatchResponse) error) error { return send(some(n, api.Healthy)) }
}

// serve puts a plugin behind a socket.
func (l *lab) serve(socket string, b *badPlugin) *grpc.Server {
	l.t.Helper()
	lis, err := net.Listen("unix", filepath.Join(l.sockets(), socket))
	l.must(err)
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, b)
	go func() { _ = s.Serve(lis) }()
	l.t.Cleanup(s.Stop)
	return s
}

// register informs the agent of a plugin.
func (l *lab) register(version, socket, resource string) error {
	l.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(l.sockets(), "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: version, Endpoint: socket, ResourceName: resource})
	return err
}

func (l *lab) offer(socket, resource string, b *badPlugin) *grpc.Server {
	l.t.Helper()
	s := l.serve(socket, b)
	l.must(l.register(api.Version, socket, resource))
	return s
}

// Bad plugins harm the pods that want their devices, and neither other plugins
// nor other pods; a person is told what is wrong.
func TestBadDevicePlugins(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := newPlug(l)
	for _, name := range []string{"a", "b"} {
		l.must(os.WriteFile(filepath.Join(p.devices, name), nil, 0o600))
	}
	l.start()
	p.start()
	l.write("first.yaml", thingPod("first", thing, 1))
	l.untilReady("first")

	// Those that cannot register are told why.
	ok := func(context.Context) error { return nil }
	l.serve("good.sock", &badPlugin{list: lists(1), allocate: ok})
	l.must(os.Symlink(filepath.Join(l.sockets(), "good.sock"), filepath.Join(l.sockets(), "link.sock")))
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(l.sockets(), "dead.sock")})
	l.must(err)
	dead.SetUnlinkOnClose(false)
	l.must(dead.Close())
	for _, c := range []struct{ version, socket, resource, want string }{
		{"v1alpha", "good.sock", "example.com/version", "is not supported; want v1beta1"},
		{api.Version, "good.sock", "things", "want domain/name"},
		{api.Version, "link.sock", "example.com/link", "want a socket, and no link"},
		{api.Version, "dead.sock", "example.com/dead", "refused"},
		{api.Version, "../good.sock", "example.com/elsewhere", "want the name of the plugin's socket"},
	} {
		if err := l.register(c.version, c.socket, c.resource); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("registration of %s at %s with %s: %v, want %q", c.resource, c.socket, c.version, err, c.want)
		}
	}

	// One hangs in Allocate, one refuses, one ends over it, one sends lists
	// that are too long, one floods.
	l.offer("hang.sock", "example.com/hang", &badPlugin{list: lists(1), allocate: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	l.offer("refuse.sock", "example.com/refuse", &badPlugin{list: lists(1), allocate: func(context.Context) error { return errors.New("it is on fire") }})
	var dies *grpc.Server
	dies = l.offer("dies.sock", "example.com/dies", &badPlugin{list: lists(1), allocate: func(ctx context.Context) error {
		go dies.Stop()
		<-ctx.Done() // the connection has ended: nothing more is heard of it
		return ctx.Err()
	}})
	l.offer("big.sock", "example.com/big", &badPlugin{list: lists(1 << 20), allocate: ok})
	flooded := make(chan struct{})
	go func() { // 10,000 devices, up to 100 times a second, each time with another health
		defer close(flooded)
		b := &badPlugin{allocate: ok, list: func(send func(*api.ListAndWatchResponse) error) error {
			lists := []*api.ListAndWatchResponse{some(10000, api.Healthy), some(10000, api.Unhealthy)}
			for i := 0; ; i++ {
				if err := send(lists[i%2]); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond) // real: this is its rate
			}
		}}
		l.offer("flood.sock", "example.com/flood", b)
	}()
	<-flooded
	for _, name := range []string{"hang", "refuse", "dies", "big"} {
		l.write(name+".yaml", thingPod(name, "example.com/"+name, 1))
	}
	began := time.Now()
	l.write("second.yaml", thingPod("second", thing, 1))
	l.write("plain.yaml", box("plain", "sleep, forever"))
	now := l.untilReady("first", "second", "plain")
	t.Logf("beside bad plugins, other pods are ready after %v", time.Since(began).Round(time.Millisecond))
	if hang := now["hang"]; hang == nil || hang.Status.Phase != v1.PodPending {
		t.Errorf("the pod whose plugin hangs is %v, and should be pending still", brief(now))
	} else if why := l.ask("why", "hang"); !strings.Contains(why, "its devices: their plugins are asked since") {
		t.Errorf("agent why says %q", why)
	}

	// Another plugin takes the name of the good one. Pods keep what they have.
	before := containerID(now["first"], "c")
	l.offer("clash.sock", thing, &badPlugin{list: lists(1), allocate: ok})
	l.until("how they end", func(now map[string]*v1.Pod) bool {
		for name, want := range map[string]string{
			"refuse": "it is on fire", "hang": "no answer in time", "big": "its plugin does not answer", "dies": "its plugin",
		} {
			if now[name] == nil || !strings.Contains(now[name].Status.Message, want) {
				return false
			}
		}
		return containerID(now["first"], "c") == before && ready(now["second"]) && ready(now["plain"])
	})
}
