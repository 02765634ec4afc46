//go:build !race

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugins are the attacks of a device plugin, or of whoever may open the socket at which
// plugins register.
func plugins() []attack {
	return []attack{
		{name: "plugin that lists 60,000 devices again and again", run: func(m *machine) {
			m.plugin("evil.sock", "example.com/evil", floodingPlugin{stop: m.t.Context()})
		}},
		{name: "plugins that register 500 resources and say nothing", run: func(m *machine) {
			at := m.registration()
			for i := range 500 {
				name := fmt.Sprintf("silent-%d.sock", i)
				l, err := net.Listen("unix", m.path("root", "device-plugins", name))
				m.must(err)
				m.t.Cleanup(func() { _ = l.Close() })
				go m.register(at, name, fmt.Sprintf("example.com/silent-%d", i))
			}
		}},
		{name: "silent connections to the socket of plugins", run: func(m *machine) {
			for range 2000 {
				conn, err := net.DialTimeout("unix", m.registration(), time.Second)
				if err != nil {
					return // the agent takes no more
				}
				m.t.Cleanup(func() { _ = conn.Close() })
			}
		}},
		{name: "200 drivers that are never silent or never speak", run: func(m *machine) {
			noise := bytes.Repeat([]byte("HTTP/1.1 200 \x00\xff"), 4096)
			for i := range 200 {
				l, err := net.Listen("unix", m.path("root", "plugins_registry", fmt.Sprintf("driver-%d.sock", i)))
				m.must(err)
				m.t.Cleanup(func() { _ = l.Close() })
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						m.t.Cleanup(func() { _ = conn.Close() })
						go func() {
							for i%2 == 0 && err == nil {
								_, err = conn.Write(noise)
							}
						}()
					}
				}()
			}
		}},
		{name: "10,000 names where plugins register", run: func(m *machine) {
			for i := range 10_000 {
				m.must(os.WriteFile(m.path("root", "plugins_registry", fmt.Sprintf("%d.sock", i)), nil, 0o600))
			}
		}},
	}
}

// registration is the socket at which device plugins register, once the agent listens there.
func (m *machine) registration() string {
	m.t.Helper()
	path := m.path("root", "device-plugins", "kubelet.sock")
	m.until("plugins can register", func() bool { _, err := os.Stat(path); return err == nil })
	return path
}

// plugin serves a device plugin and registers it.
func (m *machine) plugin(name, resource string, p pluginapi.DevicePluginServer) {
	m.t.Helper()
	at := m.registration()
	l, err := net.Listen("unix", m.path("root", "device-plugins", name))
	m.must(err)
	s := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s, p)
	go func() { _ = s.Serve(l) }()
	m.t.Cleanup(s.Stop)
	m.register(at, name, resource)
}

// register asks the agent to use a plugin's socket, and does not mind a refusal.
func (m *machine) register(at, name, resource string) {
	conn, err := grpc.NewClient("unix://"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = pluginapi.NewRegistrationClient(conn).Register(m.t.Context(), &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: name, ResourceName: resource,
	})
}

// floodingPlugin lists all that a resource may have, as other devices each time.
type floodingPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	stop context.Context
}

func (floodingPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p floodingPlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for n := 0; p.stop.Err() == nil; n++ {
		var r pluginapi.ListAndWatchResponse
		for i := range 60_000 {
			r.Devices = append(r.Devices, &pluginapi.Device{ID: fmt.Sprintf("device-%d-%d", n, i), Health: pluginapi.Healthy})
		}
		if err := stream.Send(&r); err != nil {
			return err
		}
		select { // the attacker runs in the test's process, on the same CPUs
		case <-time.After(again):
		case <-p.stop.Done():
		}
	}
	return nil
}
