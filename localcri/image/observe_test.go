//go:build linux

package image

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
)

// heard counts operations by their outcome.
type heard struct {
	mu  sync.Mutex
	ops map[string]int
}

func (h *heard) Observe(op string, _ time.Duration, code codes.Code) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ops == nil {
		h.ops = map[string]int{}
	}
	h.ops[op+" "+code.String()]++
}

func (h *heard) take() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := maps.Clone(h.ops)
	clear(h.ops)
	return out
}

func TestOperationsAreObserved(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("a", "text")), archive(t, file("b", "text")))
	cfg := testConfig(t, memory{host: srv})
	h := &heard{}
	cfg.Observer = h
	s, _ := start(t, cfg)
	want := func(what string, ops map[string]int, c Counts) {
		t.Helper()
		if got := h.take(); fmt.Sprint(got) != fmt.Sprint(ops) {
			t.Errorf("%s: heard %v, want %v", what, got, ops)
		}
		if got := s.Counts(); got != c {
			t.Errorf("%s: counts %+v, want %+v", what, got, c)
		}
	}
	var bytes uint64
	for _, l := range m.layers {
		bytes += uint64(len(srv.blobs[l]))
	}
	want("at the start", map[string]int{}, Counts{})
	pull(t, s, host+"/app:1")
	have := Counts{Images: 1, Layers: 2, LayerBytes: s.Counts().LayerBytes, Downloaded: bytes}
	if have.LayerBytes <= 0 {
		t.Error("layers without bytes")
	}
	want("a pull", map[string]int{"pull OK": 1, "download OK": 2, "unpack OK": 2}, have)
	pull(t, s, host+"/app:1")
	want("a pull of what is there", map[string]int{"pull OK": 1}, have)
	for ref, code := range map[string]codes.Code{host + "/none:1": codes.NotFound, "nowhere.test/app:1": codes.Unavailable, "A": codes.InvalidArgument} {
		if _, err := s.PullImage(t.Context(), spec(ref), nil, nil); err == nil {
			t.Errorf("%s was pulled", ref)
		}
		want(ref, map[string]int{"pull " + code.String(): 1}, have)
	}
	if _, err := s.Import(t.Context(), strings.NewReader("no archive"), ImportOptions{}); err == nil {
		t.Error("imported")
	}
	if _, err := s.ImportLayout(t.Context(), t.TempDir(), ImportOptions{}); err == nil {
		t.Error("imported")
	}
	want("imports", map[string]int{"import InvalidArgument": 2}, have)
	_, err := s.Use(t.Context(), host+"/app:1", "c1")
	must(t, err)
	have.Owners = 1
	want("a container", map[string]int{}, have)
}

// lateBlob has its bytes only after a while, each time.
type lateBlob struct {
	pause time.Duration
	text  io.Reader
}

func (l *lateBlob) Read(p []byte) (int, error) { return l.text.Read(p) }
func (l *lateBlob) ready() bool                { return l.pause == 0 }
func (l *lateBlob) close(bool)                 {}
func (l *lateBlob) wait(context.Context) error {
	time.Sleep(l.pause)
	return nil
}

// The time of unpacking is neither the network's nor that of a slot.
func TestWaitingIsNotUnpacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		slots <- struct{}{}
		go func() {
			time.Sleep(3 * time.Second)
			<-slots
		}()
		b := &lateBlob{time.Second, strings.NewReader("text")}
		r := &slotted{ctx: t.Context(), b: b, slots: slots}
		buf := make([]byte, 1)
		for _, want := range []time.Duration{3 * time.Second, 4 * time.Second} { // a second for bytes, and two more for the slot at first
			if _, err := r.Read(buf); err != nil || r.waited != want {
				t.Errorf("waited %v, %v; want %v", r.waited, err, want)
			}
			time.Sleep(time.Minute) // of unpacking
		}
		b.pause = 0
		if _, err := r.Read(buf); err != nil || r.waited != 4*time.Second {
			t.Errorf("waited %v, %v", r.waited, err)
		}
		r.release()
	})
}

func TestWhatIsSetAsideIsCounted(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
	srv.image(t, "other", "1", nil, archive(t, file("g", "x")))
	s, stop := start(t, testConfig(t, memory{host: srv}))
	other := pull(t, s, host+"/other:1")
	pull(t, s, host+"/app:1")
	_, err := s.Use(t.Context(), other, "c1")
	must(t, err)
	layer := layerOf(s, m)
	stop()
	must(t, os.WriteFile(s.path(layersDir, layer, metaFile), []byte("{}"), 0o600))
	must(t, os.WriteFile(s.path(leasesDir, "c1"), []byte("garbage"), 0o600))
	must(t, os.WriteFile(s.path(imagesDir, strings.TrimPrefix(other, digestPrefix)), []byte("garbage"), 0o600))
	s, _ = start(t, s.cfg)
	if c := s.Counts(); c.DamagedLayers != 1 || c.DamagedRecords != 1 || c.DamagedLeases != 1 || c.Images != 0 || c.Owners != 1 {
		t.Errorf("counts %+v", c)
	}
	must(t, s.Release("c1"))
	pull(t, s, host+"/app:1")
	if c := s.Counts(); c.DamagedLayers != 1 || c.Images != 1 {
		t.Errorf("counts %+v after a pull", c)
	}
}

// Numbers are there before anything was read, and after the end.
func TestCountsAroundTheLifeOfAStore(t *testing.T) {
	s, err := New(testConfig(t, memory{}))
	must(t, err)
	if c := s.Counts(); c != (Counts{}) {
		t.Errorf("%+v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, s.Run(ctx))
	if c := s.Counts(); c != (Counts{}) {
		t.Errorf("%+v", c)
	}
}
