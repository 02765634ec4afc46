package dra_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/dra"
)

const (
	v1service    = "v1.DRAPlugin"
	betaService  = "v1beta1.DRAPlugin"
	longEnough   = 2 * time.Minute // for what takes no time
	driverSocket = "dra.sock"
)

// program is a driver with a socket.
type program struct {
	api.UnimplementedDRAPluginServer
	healthapi.UnimplementedDRAResourceHealthServer
	server  *grpc.Server
	prepare func(ctx context.Context) (*api.NodePrepareResourcesResponse, error)
	health  chan *healthapi.NodeWatchResourcesResponse
	calls   atomic.Int32
	mu      sync.Mutex
	claims  []string
}

// launch starts one that serves some versions.
func launch(t *testing.T, socket string, versions ...string) *program {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{server: grpc.NewServer(), health: make(chan *healthapi.NodeWatchResourcesResponse, 1)}
	for _, v := range versions {
		switch v {
		case v1service:
			api.RegisterDRAPluginServer(p.server, p)
		case betaService:
			v1beta1.RegisterDRAPluginServer(p.server, v1beta1.V1ServerWrapper{DRAPluginServer: p})
		case "health":
			healthapi.RegisterDRAResourceHealthServer(p.server, p)
		}
	}
	go p.server.Serve(l)
	t.Cleanup(p.server.Stop)
	return p
}

func (p *program) NodePrepareResources(ctx context.Context, r *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	p.calls.Add(1)
	if p.prepare != nil {
		return p.prepare(ctx)
	}
	share := "s"
	out := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		p.mu.Lock()
		p.claims = append(p.claims, c.GetNamespace()+"/"+c.GetName()+"/"+c.GetUid())
		p.mu.Unlock()
		out.Claims[c.GetUid()] = &api.NodePrepareResourceResponse{Devices: []*api.Device{{
			RequestNames: []string{"r"}, PoolName: "pool", DeviceName: "d0", CdiDeviceIds: []string{"example.com/gpu=" + c.GetName()}, ShareId: &share,
		}}}
	}
	return out, nil
}

func (p *program) NodeUnprepareResources(_ context.Context, r *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	out := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range r.GetClaims() {
		out.Claims[c.GetUid()] = nil
		if c.GetName() == "stuck" {
			out.Claims[c.GetUid()] = &api.NodeUnprepareResourceResponse{Error: "in use"}
		}
	}
	return out, nil
}

func (p *program) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest, s grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case msg := <-p.health:
			if err := s.Send(msg); err != nil {
				return err
			}
		}
	}
}

// node is a manager in real time.
type node struct {
	*rig
	dir  string
	reg  *prometheus.Registry
	news chan dra.Change
}

func newNode(t *testing.T) *node { return newNodeOf(t, longEnough) }

// newNodeOf is newNode with so much time for each call.
func newNodeOf(t *testing.T, timeout time.Duration) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{dir: dir, reg: prometheus.NewRegistry(), news: make(chan dra.Change, 64)}
	n.rig = &rig{t: t, store: &checkpointtest.Disk{}, claims: &claims{}}
	n.cfg = dra.Config{Store: n.store, Claims: n.claims, Boot: "1", Metrics: n.reg, Timeout: timeout}
	n.start(nil)
	n.Subscribe(func(c dra.Change) { n.news <- c })
	return n
}

func (n *node) socket(name string) string { return filepath.Join(n.dir, name) }

// register registers a driver, and waits until it is connected.
func (n *node) register(name, socket string, versions ...string) {
	n.t.Helper()
	if err := n.Registrar().Register(n.t.Context(), name, n.socket(socket), versions); err != nil {
		n.t.Fatal(err)
	}
	n.until(func() bool {
		return slices.ContainsFunc(n.Drivers(), func(d dra.DriverState) bool { return d.Endpoint == n.socket(socket) && d.Connected })
	})
}

// until waits for something to be so.
func (n *node) until(so func() bool) {
	n.t.Helper()
	late := time.After(longEnough)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-n.news:
		case <-tick.C:
		case <-late:
			n.t.Fatal("it did not come to be")
		}
	}
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		serves, says []string
		want         string // "": it works
	}{
		{[]string{v1service}, []string{v1service}, ""},
		{[]string{betaService}, []string{betaService}, ""},
		{[]string{v1service, betaService}, []string{betaService, v1service}, ""},
		{[]string{v1service}, []string{"v2.DRAPlugin", v1service, betaService}, ""},
		{[]string{v1service}, []string{betaService, v1service}, "(Unimplemented)"}, // the first supported version is used
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			n := newNode(t)
			p := launch(t, n.socket(driverSocket), tt.serves...)
			n.register(gpu, driverSocket, tt.says...)
			n.claims.put(claim("a", "p"))
			err := n.Prepare(t.Context(), pod("p", "a"))
			if tt.want != "" {
				fails(t, err, tt.want, gpu, "default/a")
				return
			}
			if err != nil || !slices.Equal(p.claims, []string{"default/a/uid-a"}) {
				t.Errorf("%v; the driver heard of %v", err, p.claims)
			}
			h := n.Holdings("p", "main")
			want := dra.Device{Pool: "pool", Name: "d0", Requests: []string{"r"}, CDI: []string{"example.com/gpu=a"}, Share: "s"}
			if tt.says[0] == betaService {
				want.Share = "" // it knows of none
			}
			if len(h) != 1 || len(h[0].Devices) != 1 || fmt.Sprint(h[0].Devices[0].Device) != fmt.Sprint(want) {
				t.Errorf("has %+v, want %+v", h, want)
			}
			n.unprepare("p")
			method := "dra_grpc_operations_duration_seconds " + gpu + " OK /k8s.io.kubelet.pkg.apis.dra." + strings.TrimSuffix(map[bool]string{true: betaService, false: v1service}[tt.says[0] == betaService], ".DRAPlugin") + ".DRAPlugin/NodePrepareResources"
			if got := gather(t, n.reg); got[method] != 1 {
				t.Errorf("no %q in %v", method, got)
			}
		})
	}
}

func TestRegistrar(t *testing.T) {
	n := newNode(t)
	launch(t, n.socket(driverSocket), v1service)
	if err := os.WriteFile(n.socket("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(n.socket(driverSocket), n.socket("link")); err != nil {
		t.Fatal(err)
	}
	r, ctx := n.Registrar(), t.Context()
	for _, tt := range []struct {
		name, endpoint string
		versions       []string
		want           string
	}{
		{gpu, n.socket(driverSocket), nil, "supported versions are []"},
		{gpu, n.socket(driverSocket), []string{"v1"}, `["v1"]; want v1.DRAPlugin or v1beta1.DRAPlugin`},
		{"", n.socket(driverSocket), []string{v1service}, `driver name ""`},
		{gpu, "dra.sock", []string{v1service}, "absolute path"},
		{gpu, "/" + strings.Repeat("x", 200), []string{v1service}, "107 bytes"},
		{gpu, n.socket("none"), []string{v1service}, "no such file"},
		{gpu, n.socket("file"), []string{v1service}, "want a socket"},
	} {
		fails(t, r.Register(ctx, tt.name, tt.endpoint, tt.versions), tt.want)
	}
	n.register(gpu, "link", v1service)
	n.register(gpu, driverSocket, v1service)
	fails(t, r.Register(ctx, gpu, n.socket(driverSocket), []string{v1service}), "registered at", "already")
	r.Deregister(gpu, n.socket(driverSocket))
	r.Deregister(gpu, n.socket(driverSocket))
	r.Deregister("unknown", "/x")
	if d := n.Drivers(); len(d) != 1 || d[0].Endpoint != n.socket("link") {
		t.Errorf("registered: %v", d)
	}
	n.stop()
	if err := r.Register(ctx, gpu, n.socket(driverSocket), []string{v1service}); !errors.Is(err, dra.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// What drivers can do wrong costs their pods, and is said.
func TestBadDrivers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(ctx context.Context, p *program) (*api.NodePrepareResourcesResponse, error)
		want    []string
	}{
		{"hangs", func(ctx context.Context, _ *program) (*api.NodePrepareResourcesResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, []string{"no answer in time"}},
		{"dies", func(ctx context.Context, p *program) (*api.NodePrepareResourcesResponse, error) {
			go p.server.Stop()
			<-ctx.Done() // the connection has ended
			return nil, ctx.Err()
		}, []string{"cannot be reached"}},
		{"says no", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return nil, errors.New("out of order")
		}, []string{"out of order"}},
		{"says nothing", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{}, nil
		}, []string{"lacks the claim"}},
		{"says too much", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{
				"uid-bad": {Error: strings.Repeat("x", 5<<20)},
			}}, nil
		}, []string{"larger than max", "ResourceExhausted"}},
		{"has 300,000 devices without a name", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{
				"uid-bad": {Devices: slices.Repeat([]*api.Device{{}}, 300000)},
			}}, nil
		}, []string{"too many fields"}},
		{"has a long device", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{
				"uid-bad": {Devices: []*api.Device{{PoolName: "p", DeviceName: strings.Repeat("x", 1<<20)}}},
			}}, nil
		}, []string{"want at most 262144"}},
		{"says no at length", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{
				"uid-bad": {Error: strings.Repeat("x", 1<<20)},
			}}, nil
		}, []string{"xxx..."}},
		{"answers nil", func(context.Context, *program) (*api.NodePrepareResourcesResponse, error) {
			return &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{"uid-bad": nil}}, nil
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			timeout := longEnough // however slow the machine is
			if slices.Contains(tt.want, "no answer in time") {
				timeout = 5 * time.Second
			}
			n := newNodeOf(t, timeout)
			launch(t, n.socket("good"), v1service)
			bad := launch(t, n.socket("bad"), v1service)
			bad.prepare = func(ctx context.Context) (*api.NodePrepareResourcesResponse, error) { return tt.prepare(ctx, bad) }
			n.register(gpu, "good", v1service)
			n.register("bad.example.com", "bad", v1service)
			n.claims.put(claim("bad=bad.example.com", "p"), claim("a", "q"))
			ended := make(chan error)
			go func() { ended <- n.Prepare(context.Background(), pod("p", "bad")) }()
			n.prepare(pod("q", "a"))
			err := <-ended
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if n := len(fmt.Sprint(err)); n > 4<<10 {
				t.Errorf("the error has %d bytes, want 4096 at most", n)
			}
			fails(t, err, append(tt.want, "driver bad.example.com: NodePrepareResources of claim default/bad")...)
		})
	}
}

// A driver that is killed leaves its socket behind; it comes back at another
// one, while pods wait.
func TestDriverKilledAndBack(t *testing.T) {
	n := newNode(t)
	first := launch(t, n.socket("1"), v1service)
	n.register(gpu, "1", v1service)
	n.claims.put(claim("a", "p"), claim("b", "q"), claim("stuck", "s"))
	n.prepare(pod("p", "a"))
	first.server.Stop()
	n.until(func() bool { d := n.Drivers(); return len(d) == 1 && !d[0].Connected })
	err := n.Prepare(t.Context(), pod("q", "b"))
	if !errors.Is(err, dra.ErrAway) {
		t.Errorf("while it is away: %v", err)
	}
	n.prepare(pod("p", "a")) // which has all it needs
	for len(n.news) > 0 {
		<-n.news
	}
	launch(t, n.socket("2"), v1service)
	if err := n.Registrar().Register(t.Context(), gpu, n.socket("2"), []string{v1service}); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-n.news:
		if !slices.Equal(c.Pods, []types.UID{"q"}) {
			t.Errorf("told %v, want q", c)
		}
	case <-time.After(longEnough):
		t.Fatal("nobody was told")
	}
	n.Registrar().Deregister(gpu, n.socket("1"))
	n.prepare(pod("q", "b"))
	n.unprepare("p")
	n.unprepare("q")
	n.prepare(pod("s", "stuck"))
	fails(t, n.Unprepare(t.Context(), "s"), "driver gpu.example.com: NodeUnprepareResources of claim default/stuck: in use")
}

func TestHealthOverSockets(t *testing.T) {
	n := newNode(t)
	p := launch(t, n.socket(driverSocket), v1service, "health")
	n.register(gpu, driverSocket, v1service)
	n.claims.put(claim("a", "p"))
	n.prepare(pod("p", "a"))
	dev := func(h healthapi.HealthStatus, seconds int64, message string) *healthapi.NodeWatchResourcesResponse {
		return &healthapi.NodeWatchResourcesResponse{Devices: []*healthapi.DeviceHealth{{
			Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: "d0"}, Health: h, HealthCheckTimeoutSeconds: seconds, Message: message,
		}}}
	}
	for _, tt := range []struct {
		msg  *healthapi.NodeWatchResourcesResponse
		want string
	}{
		{dev(healthapi.HealthStatus_HEALTHY, 0, ""), "Healthy"},
		{dev(healthapi.HealthStatus_UNHEALTHY, -1, "smoke"), "Unhealthy(smoke)"},
		{dev(healthapi.HealthStatus_UNKNOWN, 1<<62, ""), "Unknown"},
		{dev(7, 1, "what"), "Unknown(what)"},
	} {
		p.health <- tt.msg
		n.until(func() bool { return n.shown("p") == "claim:my-a: example.com/gpu=a="+tt.want })
	}
	p.server.Stop()
	n.until(func() bool { return n.shown("p") == "claim:my-a: example.com/gpu=a=Unknown" })
}

// A driver that reports health every 100 us, or of more devices than there are,
// costs the manager no more than it can take.
func TestFloodsOfHealth(t *testing.T) {
	n := newNode(t)
	launch(t, n.socket("good"), v1service)
	bad := launch(t, n.socket("bad"), v1service, "health")
	n.register(gpu, "good", v1service)
	n.register("bad.example.com", "bad", v1service)
	n.claims.put(claim("bad=bad.example.com", "p"))
	n.prepare(pod("p", "bad"))
	report := func(h healthapi.HealthStatus) *healthapi.NodeWatchResourcesResponse {
		return &healthapi.NodeWatchResourcesResponse{Devices: []*healthapi.DeviceHealth{
			{Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: "d0"}, Health: h},
		}}
	}
	heard := atomic.Int64{}
	defer n.Subscribe(func(dra.Change) { heard.Add(1) })()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	start := time.Now()
	for i := 0; time.Since(start) < time.Second; i++ {
		<-tick.C
		select {
		case bad.health <- report([]healthapi.HealthStatus{healthapi.HealthStatus_HEALTHY, healthapi.HealthStatus_UNHEALTHY}[i%2]):
		default:
		}
	}
	if got, d := heard.Load(), time.Since(start); float64(got) > 10+20*d.Seconds() { // on a busy machine it is more than a second
		t.Errorf("%d changes were told in %v, want 20 a second", got, d)
	}
	many := &healthapi.NodeWatchResourcesResponse{Devices: slices.Repeat([]*healthapi.DeviceHealth{{}}, 300000)}
	bad.health <- many
	began := time.Now()
	n.claims.put(claim("a", "q"))
	n.prepare(pod("q", "a"))
	if d := time.Since(began); d > longEnough/2 {
		t.Errorf("a pod of another driver waited %v", d)
	}
}

// There are so many instances of a driver, and no more.
func TestManyInstances(t *testing.T) {
	n := newNode(t)
	failed := 0
	for i := range 30 {
		socket := fmt.Sprint("s", i)
		l, err := net.Listen("unix", n.socket(socket)) // takes connections, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := n.Registrar().Register(t.Context(), gpu, n.socket(socket), []string{v1service}); err != nil {
			failed++
			if !strings.Contains(err.Error(), "at 16 endpoints already") {
				t.Error(err)
			}
		}
	}
	if failed != 14 || len(n.Drivers()) != 16 {
		t.Errorf("%d of 30 were refused, and there are %d; want 14 and 16", failed, len(n.Drivers()))
	}
}
