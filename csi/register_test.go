package csi

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

func TestVersionsThatAreTaken(t *testing.T) {
	for versions, want := range map[string]string{
		"v1.0.0": "1.0.0", "0.3.0,1.1.0": "1.1.0", "foo,1.2.3": "1.2.3", "": "", "0.2.0": "", "2.0.0": "", "junk": "", "1.2,1.10": "1.10.0", "1.0.0-rc1": "1.0.0",
		"2.0.0,1.4.0": "1.4.0", "1": "", "1.99999999999.0": "", "-1.0.0": "",
	} {
		v, err := newest(strings.Split(versions, ","))
		if got := v.String(); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s (%v), want %q", versions, got, err, want)
		}
	}
}

// A driver is taken over by a higher version alone, and the older one is used again
// when that goes.
func TestAHigherVersionTakesOver(t *testing.T) {
	n := newNode(t, nil, nil)
	m := n.live()
	second := filepath.Join(filepath.Dir(n.socket), "two.sock")
	other, err := csitest.Start(csitest.Config{Socket: second, NodeID: "node-2"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	r := m.Registrar()
	if err := r.Register(t.Context(), testDriver, n.socket, []string{"1.1.0"}); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"1.0.0", "1.1.0"} {
		if err := r.Validate(testDriver, second, []string{v}); err == nil || !strings.Contains(err.Error(), "want a higher one") {
			t.Errorf("%s: %v", v, err)
		}
		if err := r.Register(t.Context(), testDriver, second, []string{v}); err == nil {
			t.Errorf("%s was registered", v)
		}
	}
	if err := r.Register(t.Context(), testDriver, second, []string{"1.2.0"}); err != nil {
		t.Fatal(err)
	}
	used := func() string { return m.Drivers()[0].NodeID }
	if used() != "node-2" {
		t.Errorf("used: %s", used())
	}
	r.Deregister(testDriver, second)
	if used() != "node-1" {
		t.Errorf("used: %s", used())
	}
	r.Deregister(testDriver, "/another")
	r.Deregister(testDriver, n.socket)
	if d := m.Drivers(); len(d) != 0 {
		t.Errorf("drivers %v", d)
	}
}

func TestWhatNoDriverIs(t *testing.T) {
	n := newNode(t, nil, nil)
	r := n.live().Registrar()
	for want, f := range map[string]func() error{
		"driver name":    func() error { return r.Validate("../x", n.socket, []string{"1.0.0"}) },
		"letters":        func() error { return r.Validate(strings.Repeat("x", 64), n.socket, []string{"1.0.0"}) },
		"absolute path":  func() error { return r.Validate(testDriver, "csi.sock", []string{"1.0.0"}) },
		"want one of 1.": func() error { return r.Validate(testDriver, n.socket, nil) },
		"want a socket":  func() error { return r.Register(t.Context(), testDriver, "/dev/null", []string{"1.0.0"}) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestWhatADriverMaySayOfTheNode(t *testing.T) {
	many := map[string]string{}
	for i := range maxSegments + 1 {
		many[strings.Repeat("a", i%60+1)+string(rune('a'+i%26))] = "v"
	}
	for name, c := range map[string]struct {
		resp *spec.NodeGetInfoResponse
		want int32
		bad  string
	}{
		"no limit":    {&spec.NodeGetInfoResponse{NodeId: "n"}, 0, ""},
		"a limit":     {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 26}, 26, ""},
		"too high":    {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 1 << 31}, 1<<31 - 1, ""},
		"negative":    {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: -1}, 0, ""},
		"no ID":       {&spec.NodeGetInfoResponse{}, 0, "node_id has 0 bytes"},
		"long ID":     {&spec.NodeGetInfoResponse{NodeId: strings.Repeat("x", 257)}, 0, "node_id has 257 bytes"},
		"bad key":     {&spec.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: &spec.Topology{Segments: map[string]string{"a b": "c"}}}, 0, "no label may have"},
		"bad value":   {&spec.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: &spec.Topology{Segments: map[string]string{"a": "b\n"}}}, 0, "no label may have"},
		"many labels": {&spec.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: &spec.Topology{Segments: many}}, 0, "segments"},
	} {
		got, err := infoOf(c.resp)
		if c.bad == "" && (err != nil || got.limit != c.want) || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%s: %+v (%v)", name, got, err)
		}
	}
}

// A driver whose information makes no sense is not registered.
func TestADriverThatLiesIsNotRegistered(t *testing.T) {
	n := newNode(t, &fakeCluster{}, func(c *csitest.Config) {
		c.Fault = func(m string, _ proto.Message) csitest.Fault { return csitest.Fault{Lie: m == "NodeGetInfo"} }
	})
	if err := n.live().Registrar().Register(t.Context(), testDriver, n.socket, []string{"1.0.0"}); err == nil || !strings.Contains(err.Error(), "node_id") {
		t.Errorf("got %v", err)
	}
	if len(n.m.Drivers()) != 0 {
		t.Error("it is registered")
	}
}

// The node's objects follow drivers that come and go, are tried again after
// failures, and hold up nothing but the node's readiness.
func TestTheNodesObjectsFollow(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	fails := 3
	c := &fakeCluster{apply: func(installed []plugins.CSINodeDriver, removed []string) error {
		mu.Lock()
		defer mu.Unlock()
		if fails > 0 {
			fails--
			return errors.New("the API server is away")
		}
		var names []string
		for _, d := range installed {
			names = append(names, "+"+d.Name+"="+d.NodeID)
		}
		for _, r := range removed {
			names = append(names, "-"+r)
		}
		seen = append(seen, strings.Join(names, " "))
		return nil
	}}
	n := newNode(t, c, func(c *csitest.Config) { c.Limit = 5; c.Topology = map[string]string{"zone": "a"} })
	m := n.register()
	if m.Limit(testDriver) != 5 {
		t.Errorf("limit %d", m.Limit(testDriver))
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for at := time.Now(); !is(); time.Sleep(time.Millisecond) {
			if time.Since(at) > testTimeout {
				t.Fatalf("not within %v: %s; seen %q", testTimeout, what, seen)
			}
		}
	}
	last := func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 0 {
			return "nothing"
		}
		return seen[len(seen)-1]
	}
	until("it is shown", func() bool { return last() == "+"+testDriver+"=node-1" })
	until("the node is ready", func() bool { return m.Ready() == nil })
	m.Registrar().Deregister(testDriver, n.socket)
	until("it is removed", func() bool { return last() == "-"+testDriver })
}

func TestANodeIsReadyWhenItsObjectsStand(t *testing.T) {
	n := newNode(t, &fakeCluster{}, nil)
	m, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "CSINode is not yet initialized") {
		t.Errorf("got %v", err)
	}
	m.applied(nil, errors.New("refused"))
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
	m.applied(nil, nil)
	m.applied(nil, errors.New("refused"))
	if err := m.Ready(); err != nil || m.Trouble() == nil {
		t.Errorf("got %v; trouble %v", err, m.Trouble())
	}
	n.cfg.Cluster = nil
	if m, err = New(n.cfg); err != nil || m.Ready() != nil {
		t.Errorf("alone: %v", m.Ready())
	}
}

// A driver's limit is read again on demand, and shown.
func TestLimitsAreReadAgain(t *testing.T) {
	limits := make(chan int32, 10)
	n := newNode(t, &fakeCluster{apply: func(installed []plugins.CSINodeDriver, _ []string) error {
		for _, d := range installed {
			limits <- d.Limit
		}
		return nil
	}}, func(c *csitest.Config) { c.Limit = 5 })
	m := n.register()
	if l := <-limits; l != 5 {
		t.Errorf("limit %d", l)
	}
	n.driver.SetLimit(4)
	m.Refresh(testDriver)
	l := <-limits
	if l == 5 { // an update that ran while the driver registered is made again
		l = <-limits
	}
	if l != 4 {
		t.Errorf("limit %d", l)
	}
	m.Refresh("none.example.com")
}

// Calls about one volume never overlap, whoever gave up waiting for them; those
// about others are not held up.
func TestCallsAboutOneVolumeNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancel(t.Context())
		defer stop()
		f := &flights{busy: map[string]*flight{}, base: base}
		var mu sync.Mutex
		running, worst := map[string]int{}, 0
		work := func(key string, takes time.Duration) func(context.Context) error {
			return func(context.Context) error {
				mu.Lock()
				running[key]++
				worst = max(worst, running[key])
				mu.Unlock()
				time.Sleep(takes)
				mu.Lock()
				running[key]--
				mu.Unlock()
				return nil
			}
		}
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		begun, err := f.do(short, "a", "stage", work("a", time.Minute))
		if !begun || !errors.Is(err, volumemgr.ErrUncertain) {
			t.Errorf("given up: %t, %v", begun, err)
		}
		at := time.Now()
		if _, err := f.do(t.Context(), "b", "stage", work("b", time.Second)); err != nil || time.Since(at) != time.Second {
			t.Errorf("another volume: %v after %v", err, time.Since(at))
		}
		short2, done2 := context.WithTimeout(t.Context(), time.Second)
		defer done2()
		begun, err = f.do(short2, "a", "unstage", work("a", time.Minute))
		if begun || !errors.Is(err, volumemgr.ErrTransient) || !strings.Contains(err.Error(), "waited for stage") {
			t.Errorf("behind it: %t, %v", begun, err)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := f.do(t.Context(), "a", "publish", work("a", time.Second)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if worst != 1 {
			t.Errorf("%d calls at a time", worst)
		}
		f.wait()
		if begun, err := f.do(t.Context(), "a", "stage", work("a", 0)); begun || !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A driver that hangs costs its own volume, until its caller's context ends.
func TestAHungCallIsLeftBehind(t *testing.T) {
	hang := make(chan struct{})
	n := newNode(t, nil, func(c *csitest.Config) {
		stages(c)
		c.Fault = func(_ string, req proto.Message) csitest.Fault {
			if r, ok := req.(*spec.NodeStageVolumeRequest); ok && r.GetVolumeId() == "h1" {
				return csitest.Fault{Hang: hang}
			}
			return csitest.Fault{}
		}
	})
	n.register()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	v := n.volume("u1", persistent("h1"))
	go func() { done <- n.m.Plugin().MountDevice(ctx, v) }()
	n.must(n.volume("u2", persistent("h2")))
	for n.driver.Count("NodeStageVolume") < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, volumemgr.ErrUncertain) {
		t.Errorf("got %v", err)
	}
	gone := make(chan error)
	go func() {
		d, _ := n.m.Plugin().Device(v)
		gone <- n.m.Plugin().UnmountDevice(t.Context(), d)
	}()
	close(hang)
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if v := n.driver.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if s := n.driver.Staged(); !reflect.DeepEqual(len(s), 1) {
		t.Errorf("staged %v", s)
	}
}

func TestCodes(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := true
		switch code {
		case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
			want = false
		}
		if final(code) != want {
			t.Errorf("%s is final: %t", code, final(code))
		}
	}
	err := callError("d", "m", errors.New("broken pipe"), nil)
	if !errors.Is(err, volumemgr.ErrUncertain) || !is(err, codes.Unknown) && !is(err, codes.Unavailable) {
		t.Errorf("got %v", err)
	}
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
		err := callError("d", method, status.Error(codes.FailedPrecondition, "not staged"), nil)
		if want := method == "NodePublishVolume"; errors.Is(err, volumemgr.ErrNoDevice) != want {
			t.Errorf("%v asks for another NodeStageVolume: %t, want %t", err, !want, want)
		}
	}
	if got := redact("abc abcd abcde xy", map[string]string{"1": "abcd", "2": "abcde", "3": "xy", "4": "abc"}); got != "abc *** *** xy" {
		t.Errorf("redacted: %q", got)
	}
}
