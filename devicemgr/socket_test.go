package devicemgr_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/numa"
)

// program is a device plugin with a socket.
type program struct {
	pluginapi.UnimplementedDevicePluginServer
	server   *grpc.Server
	lists    chan []*pluginapi.Device
	resign   chan error   // ends the watch
	watches  atomic.Int64 // that were begun
	options  error
	allocate func(ctx context.Context) error
	more     map[string]string // variables
	sent     atomic.Int64
}

func launch(t *testing.T, socket string, devices ...string) *program {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{server: grpc.NewServer(), lists: make(chan []*pluginapi.Device, 1), resign: make(chan error)}
	p.lists <- apiDevices(devices...)
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go p.server.Serve(l)
	t.Cleanup(p.server.Stop)
	return p
}

// apiDevices reads "a", "b!" (unhealthy), "c@1" (near node 1).
func apiDevices(ids ...string) []*pluginapi.Device {
	list := make([]*pluginapi.Device, 0, len(ids))
	for _, s := range ids {
		id, node, near := strings.Cut(strings.TrimSuffix(s, "!"), "@")
		d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{}}
		if strings.HasSuffix(s, "!") {
			d.Health = "healthy" // which is not Healthy
		}
		if near {
			d.Topology.Nodes = []*pluginapi.NUMANode{{ID: int64(node[0] - '0')}, {ID: 700}}
		}
		list = append(list, d)
	}
	return list
}

func (p *program) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, p.options
}

func (p *program) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	p.watches.Add(1)
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case err := <-p.resign:
			return err
		case list := <-p.lists:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			p.sent.Add(1)
		}
	}
}

func (p *program) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	c := r.GetContainerRequests()[0]
	all := c.GetAvailableDeviceIDs()
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{
		{DeviceIDs: all[len(all)-int(c.GetAllocationSize()):]},
	}}, nil
}

func (p *program) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	if p.allocate != nil {
		if err := p.allocate(ctx); err != nil {
			return nil, err
		}
	}
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	envs := map[string]string{"GPU": strings.Join(ids, ",")}
	maps.Copy(envs, p.more)
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		Envs:        envs,
		Mounts:      []*pluginapi.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
		Devices:     []*pluginapi.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"gpu": "yes"},
		CdiDevices:  []*pluginapi.CDIDevice{{Name: "example.com/gpu=" + ids[0]}},
	}}}, nil
}

func (p *program) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return nil, errors.New("not ready to start")
}

// register is what plugins do.
func register(t *testing.T, dir string, req *pluginapi.RegisterRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, req, grpc.WaitForReady(true))
	return err
}

func asks(endpoint, resource string) *pluginapi.RegisterRequest {
	return &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource}
}

// Deadlines of calls to plugins: of a machine however busy, and where a call is meant to meet it.
const (
	testTimeout = 2 * time.Minute
	brief       = 5 * time.Second
)

// served starts a manager with a directory of sockets.
func served(t *testing.T, deadline time.Duration) (l *life, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l = start(t, devicemgr.Config{SocketDir: dir, Store: &checkpointtest.Disk{}, Machine: twoNodes(), Timeout: deadline}, nil)
	if err := register(t, dir, asks("no.sock", gpu)); err == nil { // waits until it is served
		t.Fatal("a plugin without a socket was registered")
	}
	return l, dir
}

// until waits for changes until it is so.
func until(t *testing.T, l *life, what string, so func() bool) {
	t.Helper()
	changed := make(chan struct{}, 1)
	defer l.Subscribe(func(devicemgr.Change) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	late := time.After(testTimeout)
	for !so() {
		select {
		case <-changed:
		case <-late:
			t.Fatalf("it is not so that %s: %+v", what, l.Capacity())
		}
	}
}

func (l *life) until(t *testing.T, resource string, capacity, allocatable int) {
	t.Helper()
	until(t, l, fmt.Sprint(resource, " has ", capacity, "/", allocatable), func() bool {
		c := l.Capacity()[v1.ResourceName(resource)]
		return c.Capacity == capacity && c.Allocatable == allocatable
	})
}

func TestPluginOverSocket(t *testing.T) {
	l, dir := served(t, testTimeout)
	launch(t, filepath.Join(dir, "gpu.sock"), "a@0", "b@1", "c@1", "d!")
	if err := register(t, dir, asks("gpu.sock", gpu)); err != nil {
		t.Fatal(err)
	}
	l.until(t, gpu, 4, 3)
	a, err := l.Begin(t.Context(), pod("p", "main=1"))
	if err != nil {
		t.Fatal(err)
	}
	if h := a.Hints(0)[0]; len(h.List) != 3 || h.Any {
		t.Errorf("hints %+v, want both nodes and all", h)
	}
	if a, err = a.Choose(0, numa.Hint{Nodes: numa.Nodes(1)}); err == nil {
		err = a.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Attachment(pod("p", "main=1"), "main")
	if text, want := fmt.Sprint(got, err), "{[{GPU c nil}] [{/lib/gpu /opt/gpu true}] [{/dev/gpu /dev/null rw}] map[gpu:yes] [example.com/gpu=c]} <nil>"; text != want {
		t.Errorf("attachment %s, want %s", text, want)
	}
	if err := l.PreStart(t.Context(), pod("p", "main=1"), "main"); err == nil || !strings.Contains(err.Error(), "PreStartContainer: not ready to start") {
		t.Errorf("prestart: %v, want the plugin's words", err)
	}
	if err := l.Healthy(); err != nil {
		t.Error(err)
	}
}

// TestResigned: a plugin that ends its list with an error of its own is not asked
// again. Its devices are not to be had, and count, until it registers again.
func TestResigned(t *testing.T) {
	l, dir := served(t, testTimeout)
	p := launch(t, filepath.Join(dir, "gpu.sock"), "a", "b")
	if err := register(t, dir, asks("gpu.sock", gpu)); err != nil {
		t.Fatal(err)
	}
	l.until(t, gpu, 2, 2)
	p.resign <- errors.New("ListAndWatch failed")
	l.until(t, gpu, 2, 0)
	select {
	case p.resign <- errors.New("again"): // a watch would take it
		t.Error("it is watched again")
	case <-time.After(1500 * time.Millisecond): // the first retry would come after a second
	}
	if n := p.watches.Load(); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	l.until(t, gpu, 2, 0)
	p.lists <- apiDevices("a")
	if err := register(t, dir, asks("gpu.sock", gpu)); err != nil {
		t.Fatal(err)
	}
	l.until(t, gpu, 1, 1)
}

// TestOptionsFail informs a plugin why it is not taken, in the words that
// Kubernetes' own suite looks for.
func TestOptionsFail(t *testing.T) {
	_, dir := served(t, testTimeout)
	launch(t, filepath.Join(dir, "gpu.sock")).options = errors.New("no options today")
	err := register(t, dir, asks("gpu.sock", gpu))
	if err == nil || !strings.Contains(err.Error(), "failed to get device plugin options") || !strings.Contains(err.Error(), "no options today") {
		t.Errorf("registration: %v", err)
	}
}

func TestStartCleansTheDirectory(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o755), os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old.sock", "kubelet.sock"} {
		old, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		old.SetUnlinkOnClose(false)
		old.Close()
	}
	start(t, devicemgr.Config{SocketDir: dir, Store: &checkpointtest.Disk{}}, nil)
	if err := register(t, dir, asks("old.sock", gpu)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("register an old socket: %v, want that it is not there", err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"kubelet.sock", "kubelet_internal_checkpoint", "sub"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("left %v, %v, want %v", names, err, want)
	}
}

// Registrations that are refused say why, and the plugin hears it.
func TestRefusedRegistrations(t *testing.T) {
	l, dir := served(t, brief)
	launch(t, filepath.Join(dir, "ok.sock"), "a")
	outside := filepath.Join(t.TempDir(), "o.sock")
	launch(t, outside, "a")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dead.sock")})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	mute, err := net.Listen("unix", filepath.Join(dir, "mute.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link.sock")), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		req  *pluginapi.RegisterRequest
		want string
	}{
		{"version", &pluginapi.RegisterRequest{Version: "v1", Endpoint: "ok.sock", ResourceName: gpu}, `API version ["v1"] is not supported; want v1beta1`},
		{"name", asks("ok.sock", "gpu"), `resource name "gpu": want domain/name`},
		{"native name", asks("ok.sock", "kubernetes.io/gpu"), "kubernetes.io"},
		{"no endpoint", asks("", gpu), `endpoint ""`},
		{"path", asks("../o.sock", gpu), "want the name of the plugin's socket"},
		{"our own", asks("kubelet.sock", gpu), "want the name of the plugin's socket"},
		{"nothing there", asks("no.sock", gpu), "no such file"},
		{"link", asks("link.sock", gpu), "want a socket, and no link to one"},
		{"file", asks("file", gpu), "want a socket"},
		{"dead", asks("dead.sock", gpu), "connection refused"},
		{"mute", asks("mute.sock", gpu), "no answer in time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := register(t, dir, tt.req); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("register: %v, want %q", err, tt.want)
			}
		})
	}
	if c := l.Capacity(); len(c) != 0 {
		t.Errorf("resources %v, want none", c)
	}
}

// Beside each bad plugin there is a good one, whose pods do not notice.
func TestBadPlugins(t *testing.T) {
	const nic = "example.com/nic"
	good := func(t *testing.T, deadline time.Duration) (*life, string) {
		l, dir := served(t, deadline)
		launch(t, filepath.Join(dir, "nic.sock"), "n1", "n2", "n3")
		if err := register(t, dir, asks("nic.sock", nic)); err != nil {
			t.Fatal(err)
		}
		l.until(t, nic, 3, 3)
		return l, dir
	}
	bad := func(t *testing.T, l *life, dir string, devices ...string) *program {
		p := launch(t, filepath.Join(dir, "gpu.sock"), devices...)
		if err := register(t, dir, asks("gpu.sock", gpu)); err != nil {
			t.Fatal(err)
		}
		l.until(t, gpu, len(devices), len(devices))
		return p
	}
	undisturbed := func(t *testing.T, l *life, deadline time.Duration) { // of a call that hangs
		t.Helper()
		begin := time.Now()
		l.admit(t, pod(fmt.Sprint("good", begin.UnixNano()), "main=1@"+nic))
		if d := time.Since(begin); d >= deadline {
			t.Errorf("a pod of the good plugin waited %v", d)
		}
	}

	t.Run("dies in Allocate", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		p.allocate = func(ctx context.Context) error { go p.server.Stop(); <-ctx.Done(); return ctx.Err() }
		l.refused(t, pod("p", "main=1"), "s: its plugin ") // waits
		undisturbed(t, l, testTimeout)
		l.until(t, gpu, 1, 0)
		launch(t, filepath.Join(dir, "gpu2.sock"), "a") // its new life
		if err := register(t, dir, asks("gpu2.sock", gpu)); err != nil {
			t.Fatal(err)
		}
		l.until(t, gpu, 1, 1)
		l.admit(t, pod("p", "main=1"))
	})
	t.Run("hangs in Allocate", func(t *testing.T) {
		l, dir := good(t, brief)
		p := bad(t, l, dir, "a")
		hanging := make(chan struct{})
		p.allocate = func(ctx context.Context) error { close(hanging); <-ctx.Done(); return ctx.Err() }
		failed := make(chan error)
		go func() { failed <- l.Admit(t.Context(), pod("p", "main=1")) }()
		<-hanging
		undisturbed(t, l, brief)
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "plugin of example.com/gpu: Allocate: no answer in time") {
			t.Errorf("admit: %v, want that it took too long", err)
		}
		undisturbed(t, l, brief)
	})
	t.Run("floods", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		ids := make([]string, 10000)
		for i := range ids {
			ids[i] = fmt.Sprintf("device-%05d", i)
		}
		lists := [2][]*pluginapi.Device{apiDevices(ids...), apiDevices(ids[:9999]...)}
		flood := time.NewTicker(10 * time.Millisecond) // 100 a second
		defer flood.Stop()
		for i := range 100 {
			<-flood.C
			select {
			case p.lists <- lists[i%2]:
			default: // it has to wait
			}
			if i%50 == 49 {
				undisturbed(t, l, testTimeout)
			}
		}
		t.Logf("%d of 100 lists were taken", p.sent.Load())
		p.lists <- apiDevices("last")
		l.until(t, gpu, 1, 1)
	})
	t.Run("sends too much", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		p.lists <- apiDevices(strings.Repeat("x", 17<<20))
		l.until(t, gpu, 1, 0)
		l.refused(t, pod("p", "main=1"), "larger than max")
		undisturbed(t, l, testTimeout)
	})
	t.Run("sends a list every 100 us", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		sent := p.sent.Load()
		lists := [2][]*pluginapi.Device{apiDevices("a"), apiDevices("a!")}
		heard := atomic.Int64{}
		defer l.Subscribe(func(devicemgr.Change) { heard.Add(1) })()
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		began := time.Now()
		for i := 0; time.Since(began) < time.Second; i++ {
			<-tick.C
			select {
			case p.lists <- lists[i%2]:
			default:
			}
		}
		// On a busy machine it is more than a second.
		if n, d := heard.Load(), time.Since(began); float64(n) > 10+20*d.Seconds() {
			t.Errorf("%d changes were told in %v of %d lists, want 20 a second", n, d, p.sent.Load()-sent)
		}
		undisturbed(t, l, testTimeout)
	})
	t.Run("lists a million devices without a name", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		p.lists <- slices.Repeat([]*pluginapi.Device{{}}, 1<<20)
		l.until(t, gpu, 1, 0)
		l.refused(t, pod("p", "main=1"), "too many fields")
		undisturbed(t, l, testTimeout)
	})
	t.Run("lists more devices than are kept, and a long ID", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		list := make([]*pluginapi.Device, 70000)
		for i := range list {
			list[i] = &pluginapi.Device{ID: fmt.Sprintf("%06d", i), Health: pluginapi.Healthy}
		}
		list[0].ID = strings.Repeat("x", 10<<20)
		p.lists <- list
		l.until(t, gpu, 1<<16, 1<<16)
		undisturbed(t, l, testTimeout)
		l.admit(t, pod("p", "main=1"))
		if got := l.has("p", "main"); got != "065536" { // the last one, which the plugin prefers
			t.Errorf("p has %.100q, want 065536", got)
		}
	})
	t.Run("adds megabytes to a container", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, strings.Repeat("i", 1000)) // which it repeats
		p.more = map[string]string{"MUCH": strings.Repeat("x", 2<<20)}
		l.refused(t, pod("p", "main=1"), "want at most 1048576")
		undisturbed(t, l, testTimeout)
	})
	t.Run("fails at length", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		p := bad(t, l, dir, "a")
		p.allocate = func(context.Context) error { return errors.New(strings.Repeat("x", 50<<10)) }
		if err := l.Admit(t.Context(), pod("p", "main=1")); err == nil || len(err.Error()) > 4<<10 {
			t.Errorf("admit: an error of %d bytes, want 4096 at most", len(fmt.Sprint(err)))
		}
		undisturbed(t, l, testTimeout)
	})
	t.Run("registers 10,000 endpoints, connected as often as it can", func(t *testing.T) {
		l, dir := good(t, brief)
		mute, err := net.Listen("unix", filepath.Join(dir, "mute.sock")) // takes connections, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer mute.Close()
		conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := pluginapi.NewRegistrationClient(conn)
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 10000 {
			wg.Go(func() {
				req := asks("mute.sock", fmt.Sprintf("example.com/r%d", i))
				if _, err := client.Register(ctx, req); err == nil {
					t.Error("a plugin that says nothing was registered")
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		undisturbed(t, l, brief)
		wg.Wait()
		if n := len(l.Capacity()); n != 1 {
			t.Errorf("%d resources, want one", n)
		}
		var conns []net.Conn
		for range 1000 {
			c, err := net.Dial("unix", filepath.Join(dir, "kubelet.sock"))
			if err != nil {
				break
			}
			conns = append(conns, c)
		}
		undisturbed(t, l, brief)
		for _, c := range conns {
			c.Close()
		}
		launch(t, filepath.Join(dir, "gpu.sock"), "a")
		for late := time.After(testTimeout); ; { // the places of those who left become free one by one
			err := register(t, dir, asks("gpu.sock", gpu))
			if err == nil {
				break
			}
			select {
			case <-late:
				t.Fatalf("a plugin cannot register again: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	t.Run("another takes the name", func(t *testing.T) {
		l, dir := good(t, testTimeout)
		old := bad(t, l, dir, "a")
		launch(t, filepath.Join(dir, "thief.sock"), "x", "y")
		if err := register(t, dir, asks("thief.sock", gpu)); err != nil {
			t.Fatal(err)
		}
		l.until(t, gpu, 2, 2)
		old.server.Stop()
		undisturbed(t, l, testTimeout)
		l.admit(t, pod("p", "main=2"))
		if got := l.has("p", "main"); got != "x,y" {
			t.Errorf("p has %s, want x,y", got)
		}
	})
}

// Registration through another package's registrar, with an absolute path.
func TestRegistrar(t *testing.T) {
	l, _ := served(t, testTimeout)
	r := l.Registrar()
	socket := filepath.Join(t.TempDir(), "gpu.sock")
	p := launch(t, socket, "a")
	if err := r.Validate(gpu, socket, []string{"v1"}); err == nil {
		t.Error("version v1 is valid")
	}
	if err := r.Register(t.Context(), gpu, socket, []string{"v1alpha", "v1beta1"}); err != nil {
		t.Fatal(err)
	}
	l.until(t, gpu, 1, 1)
	r.Deregister(gpu, "/another.sock")
	l.until(t, gpu, 1, 1)
	r.Deregister(gpu, socket)
	l.until(t, gpu, 1, 0)
	if err := r.Register(t.Context(), gpu, filepath.Join(t.TempDir(), "x"), []string{"v1beta1"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v, want ErrNotExist", err)
	}
	p.server.Stop()
}
