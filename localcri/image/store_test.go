//go:build linux

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gcrregistry "github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var _ criapi.ImageManagerService = (*Store)(nil)

func remove(t testing.TB, s *Store, ref string) {
	t.Helper()
	must(t, s.RemoveImage(context.Background(), spec(ref)))
}

func layerCount(t testing.TB, s *Store) int {
	t.Helper()
	entries, err := os.ReadDir(s.path(layersDir))
	must(t, err)
	return len(entries)
}

// A name that moves leaves the old image with its digest, also after a restart and
// after the new one is gone.
func TestNameMoves(t *testing.T) {
	srv := newServer()
	first := srv.image(t, "app", "1", nil, archive(t, file("f", "one")))
	s, stop := start(t, testConfig(t, memory{host: srv}))
	ref := host + "/app:1"
	pull(t, s, ref)
	srv.image(t, "app", "1", nil, archive(t, file("f", "two")))
	second := pull(t, s, ref)
	for range 2 {
		if i := imageOf(t, s, ref); i.GetId() != second {
			t.Errorf("%s is %v, want %s", ref, i, second)
		}
		if i := imageOf(t, s, string(first.id)); len(i.GetRepoTags()) > 0 || len(i.GetRepoDigests()) != 1 {
			t.Errorf("the old image: %v", i)
		}
		stop()
		s, stop = start(t, s.cfg)
	}
	remove(t, s, second)
	stop()
	s, _ = start(t, s.cfg)
	if i := imageOf(t, s, ref); i != nil {
		t.Errorf("%s came back as %v", ref, i)
	}
	remove(t, s, string(first.id))
	remove(t, s, string(first.id))
	empty(t, s, trashDir)
	if n := layerCount(t, s); n > 0 {
		t.Errorf("%d layers are left", n)
	}
}

// An image goes by any of its names with all of them; layers of containers stay
// until the last is released, also over a restart.
func TestRemoveImage(t *testing.T) {
	srv := newServer()
	shared := archive(t, file("s", "shared"))
	img := srv.image(t, "app", "1", nil, shared, archive(t, file("f", "x")))
	srv.offer("app", "2", ociManifest, img.doc)
	srv.image(t, "other", "1", nil, shared)
	s, stop := start(t, testConfig(t, memory{host: srv}))
	for _, ref := range []string{"/app:1", "/app:2", "/other:1"} {
		pull(t, s, host+ref)
	}
	if i := imageOf(t, s, host+"/app:2"); len(i.GetRepoTags()) != 2 {
		t.Errorf("%v, want two tags", i)
	}
	root, err := s.Use(t.Context(), host+"/app:1", "c1")
	must(t, err)
	if again, err := s.Use(t.Context(), host+"/app:2", "c1"); err != nil || !slices.Equal(again.Layers, root.Layers) {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := s.Use(t.Context(), host+"/other:1", "c1"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("one owner of two images: %v", err)
	}
	if _, err := s.Use(t.Context(), host+"/none:1", "c2"); status.Code(err) != codes.NotFound {
		t.Errorf("use of what is not there: %v", err)
	}
	if _, err := s.Use(t.Context(), host+"/other:1", "../c2"); err == nil {
		t.Error("an owner that is no name was taken")
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { remove(t, s, host+"/app:2") })
	}
	wg.Wait()
	if i := imageOf(t, s, host+"/app:1"); i != nil {
		t.Errorf("there is %v", i)
	}
	stop()
	s, _ = start(t, s.cfg)
	for _, l := range root.Layers {
		if _, err := os.Stat(l); err != nil {
			t.Error(err)
		}
	}
	if owners, err := s.Owners(t.Context()); err != nil || !slices.Equal(owners, []string{"c1"}) {
		t.Errorf("%v, %v", owners, err)
	}
	must(t, errors.Join(s.Release("c1"), s.Release("c1"), s.Release("nobody")))
	emptied(t, s)
	if n := layerCount(t, s); n != 1 {
		t.Errorf("%d layers are left, want the shared one", n)
	}
	must(t, s.RemoveImage(t.Context(), spec("never/there:1")))
	if err := s.RemoveImage(t.Context(), spec("")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

// Removal, use and pulls of one image at once never leave a container without its
// layers.
func TestRemoveWhileUsed(t *testing.T) {
	srv := newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "x")), archive(t, file("g", "x")))
	s, _ := start(t, testConfig(t, memory{host: srv}))
	ref := host + "/app:1"
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 10 {
				owner := fmt.Sprintf("c-%d-%d", i, n)
				if _, err := s.PullImage(t.Context(), spec(ref), nil, nil); err != nil {
					t.Errorf("pull: %v", err)
				}
				root, err := s.Use(t.Context(), ref, owner)
				if status.Code(err) == codes.NotFound {
					continue // removed between
				}
				if err != nil {
					t.Errorf("use: %v", err)
				}
				if i%2 == 0 {
					remove(t, s, ref)
				}
				for _, l := range root.Layers {
					if _, err := os.Stat(l); err != nil {
						t.Errorf("%s: %v", owner, err)
					}
				}
				if err := s.Release(owner); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	remove(t, s, ref)
	empty(t, s, trashDir)
	if n := layerCount(t, s); n > 0 {
		t.Errorf("%d layers are left", n)
	}
}

// Damage on the disk costs one image, which can be pulled again.
func TestDamageCostsOneImage(t *testing.T) {
	for name, hurt := range map[string]func(s *Store, m made) error{
		"record": func(s *Store, m made) error {
			return os.WriteFile(s.path(imagesDir, m.id.hex()), []byte("garbage"), 0o600)
		},
		"record is cut":  func(s *Store, m made) error { return os.Truncate(s.path(imagesDir, m.id.hex()), 20) },
		"record is gone": func(s *Store, m made) error { return os.Remove(s.path(imagesDir, m.id.hex())) },
		"record of another": func(s *Store, m made) error {
			b, err := os.ReadFile(s.path(imagesDir, m.id.hex()))
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(s.path(imagesDir, m.id.hex())), os.WriteFile(s.path(imagesDir, strings.Repeat("0", 64)), b, 0o600))
		},
		"layer is gone": func(s *Store, m made) error { return os.RemoveAll(s.path(layersDir, layerOf(s, m))) },
		"layer is a file": func(s *Store, m made) error {
			p := s.path(layersDir, layerOf(s, m))
			return errors.Join(os.RemoveAll(p), os.WriteFile(p, nil, 0o600))
		},
		"layer's record": func(s *Store, m made) error {
			return os.WriteFile(s.path(layersDir, layerOf(s, m), metaFile), []byte("{}"), 0o600)
		},
		"layer's record is a pipe": func(s *Store, m made) error {
			p := s.path(layersDir, layerOf(s, m), metaFile)
			return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600))
		},
		"layer's record is a link": func(s *Store, m made) error {
			p := s.path(layersDir, layerOf(s, m), metaFile)
			return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer()
			m := srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
			srv.image(t, "other", "1", nil, archive(t, file("g", "x")))
			s, stop := start(t, testConfig(t, memory{host: srv}))
			pull(t, s, host+"/app:1")
			pull(t, s, host+"/other:1")
			stop()
			must(t, hurt(s, m))
			s, _ = start(t, s.cfg)
			if i := imageOf(t, s, host+"/app:1"); i != nil {
				t.Errorf("the damaged image is there: %v", i)
			}
			if i := imageOf(t, s, host+"/other:1"); i == nil {
				t.Error("the other image is gone")
			}
			pull(t, s, host+"/app:1")
			root, err := s.Use(t.Context(), host+"/app:1", "c1")
			must(t, err)
			if got := look(t, root.Layers[0]); got["f"] != "x" {
				t.Errorf("%v", got)
			}
		})
	}
}

func layerOf(s *Store, m made) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[m.id].Layers[0]
}

// Whose layers are in use is not known when a lease's record is damaged: nothing is
// collected until the owner lets go, also after another start.
func TestDamagedLeaseHoldsCollection(t *testing.T) {
	srv := newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
	s, stop := start(t, testConfig(t, memory{host: srv}))
	pull(t, s, host+"/app:1")
	root, err := s.Use(t.Context(), host+"/app:1", "c1")
	must(t, err)
	remove(t, s, host+"/app:1")
	stop()
	must(t, os.WriteFile(s.path(leasesDir, "c1"), []byte("garbage"), 0o600))
	for range 2 {
		s, stop = start(t, s.cfg)
		if _, err := os.Stat(root.Layers[0]); err != nil {
			t.Error(err)
		}
		stop()
	}
	s, _ = start(t, s.cfg)
	must(t, s.Release("c1"))
	emptied(t, s)
	if n := layerCount(t, s); n > 0 {
		t.Errorf("%d layers are left", n)
	}
}

// What is swept is what nobody needs, whatever happened.
func TestSweep(t *testing.T) {
	now := time.Unix(1000, 0)
	for range 2000 {
		keys := []string{"a", "b", "c", "d", "e"}
		layers, images, leases := map[string]*layer{}, map[digest]*record{}, map[string]*lease{}
		some := func() (out []string) {
			for _, k := range keys {
				if rand.IntN(4) == 0 {
					out = append(out, k)
				}
			}
			return out
		}
		for _, k := range keys {
			layers[k] = &layer{held: rand.IntN(2), keep: now.Add(time.Duration(rand.IntN(3)-1) * time.Hour)}
		}
		images["i"], leases["l"] = &record{Layers: some()}, &lease{Layers: some(), Unknown: rand.IntN(8) == 0}
		hung := rand.IntN(8) == 0
		got := sweep(layers, images, leases, hung, now, 1)
		for _, k := range keys {
			needed := hung || leases["l"].Unknown || slices.Contains(images["i"].Layers, k) || slices.Contains(leases["l"].Layers, k) ||
				layers[k].held > 0 || layers[k].keep.After(now)
			if needed == slices.Contains(got, k) {
				t.Fatalf("%s: needed %t, swept %v", k, needed, got)
			}
		}
	}
}

// A directory has one store at a time; the second learns whose it is.
func TestSecondStoreIsRefused(t *testing.T) {
	cfg := testConfig(t, nil)
	first, _ := start(t, cfg)
	second, err := New(cfg)
	must(t, err)
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("%v, want the process named", err)
	}
	if _, err := second.ListImages(t.Context(), nil); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if _, err := first.ListImages(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for field, cfg := range map[string]Config{
		"RootDir":                         {RootDir: "x"},
		"PreloadDir":                      {RootDir: "/x", PreloadDir: "y"},
		"PullBytesPerSecond":              {RootDir: "/x", PullBytesPerSecond: -1},
		"MaxLayerBytes":                   {RootDir: "/x", MaxLayerBytes: -1},
		"Pinned[0]":                       {RootDir: "/x", Pinned: []string{"UPPER"}},
		`Registries["x"].Mirrors[0].Host`: {RootDir: "/x", Registries: map[string]Registry{"x": {Mirrors: []Mirror{{Host: "https://y"}}}}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Calls before the start wait, and those after the end fail, as do pulls under way.
func TestCallsAroundTheLifeOfAStore(t *testing.T) {
	srv := newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
	asked := make(chan struct{}, 100)
	srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	cfg := testConfig(t, memory{host: srv})
	s, err := New(cfg)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.ListImages(ctx, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("before: %v", err)
	}
	s, stop := start(t, cfg)
	done := make(chan error, 1)
	go func() {
		_, err := s.PullImage(t.Context(), spec(host+"/app:1"), nil, nil)
		done <- err
	}()
	<-asked
	stop()
	if err := <-done; err == nil {
		t.Error("pulled")
	}
	if _, err := s.ListImages(t.Context(), nil); status.Code(err) != codes.Unavailable {
		t.Errorf("after: %v", err)
	}
}

const (
	crashDir  = "NODEWRIGHT_TEST_CRASH_DIR"
	crashStep = "NODEWRIGHT_TEST_CRASH_STEP"
	crashURL  = "NODEWRIGHT_TEST_CRASH_REGISTRY"
)

// TestCrash is what the next test executes: a pull that is killed at a point.
func TestCrash(t *testing.T) {
	if os.Getenv(crashDir) == "" {
		t.Skip("is executed by TestKilledPulls")
	}
	u := os.Getenv(crashURL)
	s, _ := start(t, Config{
		RootDir: os.Getenv(crashDir), OS: "linux", Architecture: "amd64", Reserve: 1, Registries: map[string]Registry{u: {Endpoint: Endpoint{PlainHTTP: true}}},
		step: func(what string) {
			if what == os.Getenv(crashStep) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	pull(t, s, u+"/app:1")
}

// A process that is killed anywhere in a pull leaves an image whole or absent, and
// the next pull brings it. The registry is a real one.
func TestKilledPulls(t *testing.T) {
	needRoot(t)
	srv := httptest.NewServer(gcrregistry.New(gcrregistry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	at := strings.TrimPrefix(srv.URL, "http://")
	src := newServer()
	text := randomText(100_000)
	src.image(t, "app", "1", nil, archive(t, file("f", text)), archive(t, file("g", "x")), archive(t, file("d/implied", "x")))
	upload(t, srv.URL, src, "app", "1")
	for _, step := range []string{"extracted", "synced", "renamed", "recorded"} {
		root := filepath.Join(t.TempDir(), "images")
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
		cmd.Env = append(os.Environ(), crashDir+"="+root, crashStep+"="+step, crashURL+"="+at)
		out, err := cmd.CombinedOutput()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || ws.Signal() != syscall.SIGKILL {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		s, stop := start(t, Config{RootDir: root, OS: "linux", Architecture: "amd64", Reserve: 1, Registries: map[string]Registry{"*": {Endpoint: Endpoint{PlainHTTP: true}}}})
		left, err := os.ReadDir(s.path(ingestDir))
		must(t, err)
		for _, e := range left {
			if !strings.HasPrefix(e.Name(), blobPrefix) { // a download, which the next pull continues
				t.Errorf("%s: ingest has %s", step, e.Name())
			}
		}
		there := imageOf(t, s, at+"/app:1") != nil
		if want := step == "recorded"; there != want {
			t.Errorf("%s: the image is there: %t, want %t", step, there, want)
		}
		pull(t, s, at+"/app:1")
		empty(t, s, ingestDir)
		rootfs, err := s.Use(t.Context(), at+"/app:1", "c1")
		must(t, err)
		for i, want := range []map[string]string{{"d": "dir", "d/implied": "x"}, {"g": "x"}, {"f": text}} {
			if got := look(t, rootfs.Layers[i]); !equal(got, want) {
				t.Errorf("%s: layer %d has other files than its archive", step, i)
			}
		}
		must(t, s.Release("c1"))
		remove(t, s, at+"/app:1")
		empty(t, s, trashDir)
		if n := layerCount(t, s); n > 0 {
			t.Errorf("%s: %d layers are left", step, n)
		}
		stop()
	}
}

// upload gives a real registry what one in memory has.
func upload(t testing.TB, url string, src *server, repo, tag string) {
	t.Helper()
	send := func(method, path, mediaType string, b []byte) {
		req, err := http.NewRequest(method, url+path, bytes.NewReader(b))
		must(t, err)
		req.Header.Set("Content-Type", mediaType)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
	}
	for d, b := range src.blobs {
		send(http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+string(d), "application/octet-stream", b)
	}
	send(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, ociManifest, src.manifests[repo+" "+tag])
}

// The steps of a pull come in the order that a power cut needs: files are synced
// before layers have their names, and those before the record. What has a name
// before that is not there for the next start.
func TestOrderOfDurability(t *testing.T) {
	srv := newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "x")), archive(t, file("g", "y")))
	cfg := testConfig(t, memory{host: srv})
	var mu sync.Mutex
	var steps []string
	cfg.step = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, what)
		layers, _ := os.ReadDir(filepath.Join(cfg.RootDir, layersDir))
		images, _ := os.ReadDir(filepath.Join(cfg.RootDir, imagesDir))
		want := map[string][2]int{"extracted": {0, 0}, "synced": {0, 0}, "renamed": {2, 0}, "recorded": {2, 1}}[what]
		if len(layers) != want[0] || len(images) != want[1] {
			t.Errorf("%s: %d layers and %d records, want %v", what, len(layers), len(images), want)
		}
	}
	s, _ := start(t, cfg)
	pull(t, s, host+"/app:1")
	if want := []string{"extracted", "extracted", "synced", "renamed", "recorded"}; !slices.Equal(steps, want) {
		t.Errorf("%v, want %v", steps, want)
	}
}

// The image part of the runtimes' conformance suite.
func TestConformanceOfImages(t *testing.T) {
	srv := newServer()
	srv.image(t, "box", "1", nil, archive(t, file("f", "x")))
	s, _ := start(t, testConfig(t, memory{host: srv}))
	pull(t, s, host+"/box:1")
	st, err := s.ImageStatus(t.Context(), spec(host+"/box:1"), true)
	if err != nil || st.GetImage().GetId() == "" || !strings.HasPrefix(st.GetInfo()["info"], `{"imageSpec":{"`) || !json.Valid([]byte(st.GetInfo()["info"])) {
		t.Errorf("image that is there: %v, %v", st, err)
	}
	st, err = s.ImageStatus(t.Context(), spec("localhost/no/such:1"), false)
	if err != nil || st.GetImage() != nil {
		t.Errorf("image that is not there: %v, %v; want neither", st, err)
	}
	if _, err := s.ImageStatus(t.Context(), &runtimeapi.ImageSpec{}, false); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no name: %v", err)
	}
	if _, err := s.PullImage(t.Context(), spec("localhost:1/no/such:1"), nil, nil); err == nil {
		t.Error("pull of an image that is nowhere succeeded")
	}
}
