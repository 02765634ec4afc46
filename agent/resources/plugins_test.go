package resources_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/pluginmgr"
)

// registered is a handler that reports the names of plugins.
type registered chan string

func (registered) Validate(string, string, []string) error { return nil }

func (r registered) Register(_ context.Context, name, _ string, _ []string) error {
	r <- name
	return nil
}

func (registered) Deregister(string, string) {}

// pluginsDriver is a program behind a registration socket.
type pluginsDriver struct {
	registerapi.UnimplementedRegistrationServer
	told chan bool
}

func (pluginsDriver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: pluginmgr.DRAPlugin, Name: "gpu.example.com", SupportedVersions: []string{"v1"}}, nil
}

func (d pluginsDriver) NotifyRegistrationStatus(_ context.Context, st *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.told <- st.GetPluginRegistered()
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve has a driver serve in a directory.
func serve(t *testing.T, dir string) pluginsDriver {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "gpu.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d, s := pluginsDriver{told: make(chan bool, 1)}, grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, d)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return d
}

func TestNewNamesMistakes(t *testing.T) {
	for _, tt := range []struct {
		cfg  resources.PluginsConfig
		want string
	}{
		{resources.PluginsConfig{}, "Config.Dir"},
		{resources.PluginsConfig{Dir: "/d", After: []<-chan struct{}{nil}}, "PluginsConfig.After"},
		{resources.PluginsConfig{Dir: "/d", Handlers: map[string][]pluginmgr.Handler{"X": nil}}, "Config.Handlers"},
	} {
		if _, err := resources.NewPlugins(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New(%+v): %v, want it to name %s", tt.cfg, err, tt.want)
		}
	}
}

// A plugin is found and brought to its handler, when the handler is ready.
func TestPlugins(t *testing.T) {
	dir, drivers := t.TempDir(), filepath.Join(t.TempDir(), "plugins")
	d, handler := serve(t, dir), make(registered, 1)
	ready := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	p, err := resources.NewPlugins(resources.PluginsConfig{
		Dir: dir, Drivers: drivers, Handlers: map[string][]pluginmgr.Handler{pluginmgr.DRAPlugin: {handler}}, After: []<-chan struct{}{ready[0], ready[1]},
	})
	if err != nil || p.Name() != "plugins" {
		t.Fatalf("name %q, %v", p.Name(), err)
	}
	stop := testrun.Start(t, p.Run)
	close(ready[0])
	if list := p.Plugins(); len(list) != 0 {
		t.Errorf("plugins before the handler is ready: %v", list)
	}
	close(ready[1])
	if name, ok := <-handler, <-d.told; name != "gpu.example.com" || !ok {
		t.Errorf("plugin %q, told %v", name, ok)
	}
	if st, err := os.Stat(drivers); err != nil || !st.IsDir() {
		t.Errorf("directory of drivers: %v", err)
	}
	if list := p.Plugins(); len(list) != 1 || list[0].Socket != filepath.Join(dir, "gpu.sock") {
		t.Errorf("plugins %+v", list)
	}
	stop()
}

// Run ends while it waits for a handler that is never ready.
func TestHandlerIsNeverReady(t *testing.T) {
	p, err := resources.NewPlugins(resources.PluginsConfig{Dir: t.TempDir(), After: []<-chan struct{}{make(chan struct{})}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
}
