package pluginmgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/testrun"
)

// rig is a directory in memory, plugins behind its sockets, and a handler that records its calls.
type rig struct {
	mu      sync.Mutex
	dir     map[string]identity
	next    uint64
	wake    chan struct{}
	plugins map[string]*plugin
	heard   []string
	refuse  map[string]error // what Register says, by name
	invalid error            // what Validate says
	hang    chan struct{}    // Register of "slow" waits for it
	looks   int
	m       *Manager
}

type plugin struct {
	r       *rig
	info    Info
	infoErr error
	told    error // by Notify
}

func (p *plugin) Info(context.Context) (Info, error) { return p.info, p.infoErr }
func (p *plugin) Close() error                       { return nil }
func (p *plugin) Notify(_ context.Context, ok bool, why string) error {
	p.r.note("told %s %v %s", p.info.Name, ok, why)
	return p.told
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (r *rig) Validate(string, string, []string) error { return r.invalid }

func (r *rig) Register(ctx context.Context, name, endpoint string, _ []string) error {
	r.note("register %s %s", name, endpoint)
	if name == "slow" {
		select {
		case <-r.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuse[name]
}

func (r *rig) Deregister(name, endpoint string) { r.note("deregister %s %s", name, endpoint) }

func (r *rig) put(path string, p *plugin) {
	r.mu.Lock()
	r.next++
	r.dir[path] = identity{inode: r.next}
	p.r = r
	r.plugins[path] = p
	r.mu.Unlock()
	r.poke()
}

func (r *rig) remove(path string) {
	r.mu.Lock()
	delete(r.dir, path)
	r.mu.Unlock()
	r.poke()
}

func (r *rig) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the calls recorded since the last call of take.
func (r *rig) take() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.Join(r.heard, "; ")
	r.heard = nil
	return s
}

func bubble(t *testing.T, fn func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{dir: map[string]identity{}, wake: make(chan struct{}, 1), plugins: map[string]*plugin{}, refuse: map[string]error{}, hang: make(chan struct{})}
		m, err := New(Config{
			Dir: "/plugins", Handlers: map[string][]Handler{"T": {r}}, wake: r.wake,
			look: func(string) (map[string]identity, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.looks++
				found := map[string]identity{}
				for k, v := range r.dir {
					found[k] = v
				}
				return found, nil
			},
			Connect: func(_ context.Context, path string) (Plugin, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if p := r.plugins[path]; p != nil {
					return p, nil
				}
				return nil, errors.New("connection refused")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.m = m
		stop := testrun.Start(t, m.Run)
		fn(t, r)
		stop()
	})
}

func is(name string) *plugin {
	return &plugin{info: Info{Type: "T", Name: name, Versions: []string{"v1"}}}
}

func TestHandshake(t *testing.T) {
	for _, tt := range []struct {
		name   string
		plugin *plugin
		change func(*rig)
		want   string
	}{
		{"endpoint is the socket", is("a"), nil, "register a /p; told a true"},
		{"endpoint elsewhere", &plugin{info: Info{Type: "T", Name: "a", Endpoint: "/e"}}, nil, "register a /e; told a true"},
		{"no handler", &plugin{info: Info{Type: "X", Name: "a"}}, nil, `told a false no handler for plugins of type "X"`},
		{"invalid", is("a"), func(r *rig) { r.invalid = errors.New("v9") }, `told a false plugin T "a": v9`},
		{"refused", is("a"), func(r *rig) { r.refuse["a"] = errors.New("no") }, "register a /p; told a false no"},
		{"does not hear that it is", &plugin{info: Info{Type: "T", Name: "a"}, told: errors.New("gone")}, nil, "register a /p; told a true; deregister a /p"},
		{"does not say who it is", &plugin{infoErr: errors.New("what")}, nil, ""},
		{"dead socket", nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if tt.change != nil {
					tt.change(r)
				}
				if tt.plugin != nil {
					r.put("/p", tt.plugin)
				} else {
					r.mu.Lock()
					r.dir["/p"] = identity{inode: 1}
					r.mu.Unlock()
					r.poke()
				}
				if got := r.take(); got != tt.want {
					t.Errorf("heard %q, want %q", got, tt.want)
				}
				st := r.m.Plugins()[0]
				if ok := strings.HasSuffix(tt.want, "true"); st.Registered != ok || (st.Trouble == "") != ok {
					t.Errorf("state %+v, want registered=%v", st, ok)
				}
				r.remove("/p")
				synctest.Wait()
				if left := r.m.Plugins(); len(left) != 0 {
					t.Errorf("sockets known after the removal: %v", left)
				}
			})
		})
	}
}

func TestComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		want := func(what, want string) {
			t.Helper()
			if got := r.take(); got != want {
				t.Errorf("%s: heard %q, want %q", what, got, want)
			}
		}
		r.put("/p", is("a"))
		want("comes", "register a /p; told a true")
		r.poke()
		want("nothing happened", "")
		r.put("/p", is("a"))
		want("made again", "deregister a /p; register a /p; told a true")
		r.put("/q", is("a"))
		want("same name from another socket", "register a /q; told a true")
		r.remove("/p")
		want("removed", "deregister a /p")
		r.remove("/unknown")
		want("what was not there is removed", "")

		// Changes that the kernel does not report are found nevertheless.
		r.mu.Lock()
		delete(r.dir, "/q")
		r.mu.Unlock()
		time.Sleep(time.Minute)
		want("lost event", "deregister a /q")
	})
}

func TestBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.refuse["a"] = errors.New("no")
		begin := time.Now()
		r.put("/p", is("a"))
		var at []time.Duration
		for len(at) < 12 {
			if strings.Contains(r.take(), "register") {
				at = append(at, time.Since(begin))
			}
			time.Sleep(250 * time.Millisecond)
		}
		want := []time.Duration{0}
		for pause := 500 * time.Millisecond; len(want) < 12; pause = min(2*pause, 122*time.Second) {
			want = append(want, want[len(want)-1]+pause)
		}
		if !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v", at, want)
		}
		r.put("/p", is("a")) // a new one is not blamed for the old
		if got := r.take(); got != "register a /p; told a false no" {
			t.Errorf("a new socket: heard %q", got)
		}
		r.mu.Lock()
		delete(r.refuse, "a")
		r.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		if got := r.take(); got != "register a /p; told a true" {
			t.Errorf("after the first pause: heard %q", got)
		}
	})
}

// versioned takes plugins of one version.
type versioned struct {
	*rig
	version string
}

func (v versioned) Validate(_, _ string, versions []string) error {
	if !slices.Contains(versions, v.version) {
		return fmt.Errorf("want %s", v.version)
	}
	return nil
}

func (v versioned) Register(_ context.Context, name, _ string, _ []string) error {
	v.note("%s registers %s", v.version, name)
	return nil
}

func TestHandlersByVersion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.m.cfg.Handlers["T"] = []Handler{versioned{r, "v2"}, versioned{r, "v1"}}
		for _, tt := range []struct {
			versions []string
			want     string
		}{
			{[]string{"v1"}, "v1 registers a; told a true"},
			{[]string{"v1", "v2"}, "deregister a /p; v2 registers a; told a true"},
			{[]string{"v3"}, "deregister a /p; told a false plugin T \"a\": want v2\nwant v1"},
		} {
			p := is("a")
			p.info.Versions = tt.versions
			r.put("/p", p)
			if got := r.take(); got != tt.want {
				t.Errorf("versions %v: heard %q, want %q", tt.versions, got, tt.want)
			}
		}
	})
}

// A handler that hangs holds up its socket alone.
func TestSlowPlugin(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.put("/slow", is("slow"))
		synctest.Wait()
		r.put("/p", is("a"))
		if got := r.take(); got != "register slow /slow; register a /p; told a true" {
			t.Errorf("heard %q", got)
		}
		r.remove("/slow")
		synctest.Wait()
		close(r.hang)
		if got := r.take(); got != "told slow true; deregister slow /slow" {
			t.Errorf("heard %q, want the end after the start", got)
		}
	})
}

func TestNewNamesMistakes(t *testing.T) {
	_, err := New(Config{Dir: "x", Handlers: map[string][]Handler{"T": nil}})
	for _, want := range []string{"Dir", `Handlers["T"]`} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("New: %v, want it to name Config.%s", err, want)
		}
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	listen := func(name string) net.Listener {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	listen("a.sock")
	listen("sub/b.sock")
	listen(".hidden.sock")
	listen(".dir/c.sock")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		os.Symlink(filepath.Join(dir, "a.sock"), filepath.Join(dir, "link.sock")),
		os.Symlink(filepath.Join(dir, "sub"), filepath.Join(dir, "linked")),
	); err != nil {
		t.Fatal(err)
	}
	found, err := look(dir)
	if err != nil || len(found) != 2 || found[filepath.Join(dir, "a.sock")] == (identity{}) || found[filepath.Join(dir, "sub/b.sock")] == (identity{}) {
		t.Errorf("found %v, %v, want a.sock and sub/b.sock", found, err)
	}
	if err := os.Chmod(filepath.Join(dir, "a.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	again, err := look(dir)
	if a := filepath.Join(dir, "a.sock"); err != nil || again[a] != found[a] {
		t.Errorf("after chmod: %v, %v, want the same socket as %v", again[a], err, found[a])
	}
	if _, err := look(filepath.Join(dir, "file")); err == nil {
		t.Error("a file is no directory, and was looked at")
	}
	if found, err := look(filepath.Join(dir, "new")); err != nil || len(found) != 0 {
		t.Errorf("a new directory: %v, %v", found, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode().Perm()&fs.ModePerm == 0 {
		t.Errorf("the directory was not made: %v", err)
	}
}

// server is a plugin with a socket of its own.
type server struct {
	api.UnimplementedRegistrationServer
	told chan *api.RegistrationStatus
}

func (s *server) GetInfo(context.Context, *api.InfoRequest) (*api.PluginInfo, error) {
	return &api.PluginInfo{Type: CSIPlugin, Name: "csi.example.com", Endpoint: "/csi.sock", SupportedVersions: []string{"1.0.0"}}, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context, st *api.RegistrationStatus) (*api.RegistrationStatusResponse, error) {
	s.told <- st
	return &api.RegistrationStatusResponse{}, nil
}

type channels struct{ registered, gone chan string }

func (c channels) Validate(string, string, []string) error { return nil }
func (c channels) Register(_ context.Context, name, endpoint string, versions []string) error {
	c.registered <- fmt.Sprint(name, " ", endpoint, " ", versions)
	return nil
}
func (c channels) Deregister(name, _ string) { c.gone <- name }

// Over real sockets, in a directory that is made while it is watched.
func TestSockets(t *testing.T) {
	dir := t.TempDir()
	h := channels{make(chan string, 1), make(chan string, 1)}
	m, err := New(Config{Dir: dir, Handlers: map[string][]Handler{CSIPlugin: {h}}})
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, m.Run)
	for range 2 { // the second is a new one at the same path
		path := filepath.Join(dir, "csi", "reg.sock")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s, told := grpc.NewServer(), make(chan *api.RegistrationStatus, 1)
		api.RegisterRegistrationServer(s, &server{told: told})
		go s.Serve(l)
		if got, want := <-h.registered, "csi.example.com /csi.sock [1.0.0]"; got != want {
			t.Errorf("registered %q, want %q", got, want)
		}
		if st := <-told; !st.GetPluginRegistered() {
			t.Errorf("told %v, want that it is registered", st)
		}
		s.Stop() // removes the socket
		if got := <-h.gone; got != "csi.example.com" {
			t.Errorf("deregistered %q", got)
		}
	}
	stop()
}

// The directory of plugins has limits; registered plugins stay.
func TestDirectoryWithTooMuch(t *testing.T) {
	dir := t.TempDir()
	socket := func(name string) {
		t.Helper()
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFSOCK|0o600, 0); err != nil {
			t.Skip("needs to make sockets: ", err)
		}
	}
	m, err := New(Config{Dir: dir, Connect: func(context.Context, string) (Plugin, error) { return nil, errors.New("away") }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	take := func() error {
		t.Helper()
		found, err := look(dir)
		if len(found) > maxSockets {
			t.Errorf("%d sockets were found", len(found))
		}
		m.update(ctx, &wg, found, err != nil)
		if len(m.Plugins()) > maxSockets {
			t.Errorf("%d plugins are known", len(m.Plugins()))
		}
		return err
	}
	socket("zzz.sock")
	if err := take(); err != nil {
		t.Fatal(err)
	}
	for i := range maxSockets + 10 {
		socket(fmt.Sprintf("%05d.sock", i))
	}
	if err := take(); !errors.Is(err, errTooMuch) {
		t.Errorf("%v, want errTooMuch", err)
	}
	first := filepath.Join(dir, "zzz.sock")
	if !slices.ContainsFunc(m.Plugins(), func(s State) bool { return s.Socket == first }) {
		t.Error("the first plugin was forgotten for others")
	}
	deep := dir
	for range 40 {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	visited := 0
	if err := walk(dir, func(path string, _ fs.DirEntry) {
		visited++
		if strings.Count(strings.TrimPrefix(path, dir), "/d") > maxDepth+1 {
			t.Errorf("%s was visited", path)
		}
	}); !errors.Is(err, errTooMuch) {
		t.Errorf("%v, want errTooMuch", err)
	}
	for i := range maxEntries {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	visited = 0
	if err := walk(dir, func(string, fs.DirEntry) { visited++ }); !errors.Is(err, errTooMuch) || visited > maxEntries {
		t.Errorf("%d entries were visited, %v; want at most %d and errTooMuch", visited, err, maxEntries)
	}
}

// Whoever changes the directory without end has it looked at a few times.
func TestDirectoryThatChangesWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	w, err := watch(dir, zap.NewNop())
	if err != nil {
		t.Skip(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			path := filepath.Join(dir, fmt.Sprint(i%10))
			_ = os.WriteFile(path, nil, 0o600)
			_ = os.Remove(path)
		}
	})
	const looks = 6
	<-w.wake
	began := time.Now()
	for range looks {
		<-w.wake
	}
	took := time.Since(began) // on a busy machine more
	close(stop)
	wg.Wait()
	w.close()
	if least := (looks - 2) * settle; took < least { // one may have waited to be taken
		t.Errorf("the directory is to be looked at %d times in %v, want at least %v", looks, took, least)
	}
}

// A plugin with too long an answer is rejected, and gets a short error.
func TestTalkativePlugins(t *testing.T) {
	good := Info{Type: "T", Name: "n.example.com", Endpoint: "/x.sock", Versions: []string{"1.0.0"}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 5000)
	for want, change := range map[string]func(*Info){
		"type":      func(i *Info) { i.Type = long },
		"type ":     func(i *Info) { i.Type = "" },
		"name":      func(i *Info) { i.Name = long },
		"endpoint":  func(i *Info) { i.Endpoint = "/" + long },
		"endpoint ": func(i *Info) { i.Endpoint = "x.sock" },
		"versions":  func(i *Info) { i.Versions = make([]string, 65) },
		"version":   func(i *Info) { i.Versions = []string{long} },
	} {
		i := good
		change(&i)
		if err := i.check(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) || len(err.Error()) > pluginconn.MaxText {
			t.Errorf("%s: %v", want, err)
		}
	}
	err := callerror.Brief(fmt.Errorf("%w: %s", fs.ErrNotExist, long), pluginconn.MaxText)
	if len(err.Error()) > pluginconn.MaxText+3 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

// Any answer of a plugin is rejected with a short error, or within limits.
func FuzzPluginInfo(f *testing.F) {
	for _, i := range []*api.PluginInfo{
		{Type: CSIPlugin, Name: "csi.example.com", Endpoint: "/csi.sock", SupportedVersions: []string{"1.0.0"}},
		{Type: "\x00", Endpoint: "/\x00", SupportedVersions: make([]string, 100)},
		{},
	} {
		b, err := proto.Marshal(i)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg api.PluginInfo
		if len(b) > answers.Bytes || proto.Unmarshal(b, &msg) != nil {
			return
		}
		i := infoOf(&msg)
		if err := callerror.Brief(i.check(), pluginconn.MaxText); err != nil {
			if len(err.Error()) > pluginconn.MaxText+len("...") {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		size := len(i.Type) + len(i.Name) + len(i.Endpoint)
		for _, v := range i.Versions {
			size += len(v)
		}
		if size > 2*maxName+maxPath+maxVersions*maxVersion || !filepath.IsAbs(i.Endpoint) {
			t.Fatalf("%+v was taken", i)
		}
	})
}
