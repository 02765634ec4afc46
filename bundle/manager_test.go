package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podmgr"
)

const testRef = "127.0.0.1:5000/fleet/shop:prod"

// node is a Node whose pods are ready unless their names begin with bad.
type node struct {
	mu      sync.Mutex
	pods    []*v1.Pod
	history []string // names of the first pod of each delivery
	noImage error
	pulls   int
}

func (n *node) EnsureImages(context.Context, *v1.Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pulls++
	return n.noImage
}

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods
}

func (n *node) deliver(s podmgr.Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = s.Pods
	first := ""
	for i, p := range s.Pods {
		if i == 0 {
			first = p.Name
		}
		p.Status.Phase = v1.PodRunning
		if !strings.HasPrefix(p.Name, "bad") {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
	}
	n.history = append(n.history, first)
}

func (n *node) set(noImage error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noImage = noImage
}

func (n *node) ran() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.history, " ")
}

// inProcess answers the requests of a client by a handler, without a network, so that time is
// virtual.
type inProcess struct {
	mu    sync.Mutex
	h     http.Handler
	seen  []string // method and path
	times []time.Time
}

func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	h := p.h
	p.seen, p.times = append(p.seen, r.Method+" "+r.URL.Path), append(p.times, time.Now())
	p.mu.Unlock()
	w := httptest.NewRecorder()
	served := r.Clone(r.Context())
	if r.Body == nil {
		served.Body = http.NoBody
	}
	h.ServeHTTP(w, served)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// count returns how many requests there were with a prefix.
func (p *inProcess) count(prefix string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (p *inProcess) set(h http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.h = h
}

// bed is a Manager that runs in a bubble, with its registry.
type bed struct {
	*Manager
	node *node
	reg  *inProcess
	end  func()
}

func begin(t *testing.T, store Store, n *node, change func(*Config)) *bed {
	t.Helper()
	reg := &inProcess{h: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	cfg := Config{NodeName: "n", Store: store, Node: n, Ref: testRef, Registry: Registry{Transport: reg}, Log: zap.NewNop()}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &bed{m, n, reg, testrun.Start(t, func(ctx context.Context) error { return m.Run(ctx, n.deliver) })}
}

func (b *bed) push(t *testing.T, bundle *Bundle) {
	t.Helper()
	if err := b.cfg.Registry.Push(t.Context(), testRef, bundle); err != nil {
		t.Fatal(err)
	}
}

func freshDisk() *disk { return &disk{values: map[string][]byte{}, cut: -1} }

// A tag is asked for once an interval, and its bundle takes effect once. A bundle that does not
// become healthy is replaced by the last good one, also over a restart, until the tag changes.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, n := freshDisk(), &node{}
		b := begin(t, d, n, nil)
		good, bad := manifests(t, "good"), manifests(t, "bad")
		b.push(t, good)
		time.Sleep(2 * time.Minute)
		if s := b.Status(); s.Good != good.Digest || s.Next != nil || s.Seen != good.Digest || s.PollError != "" {
			t.Fatalf("%+v", s)
		}
		heads, gets := b.reg.count("HEAD /v2/fleet/shop/manifests/prod"), b.reg.count("GET /v2/fleet/shop/")
		time.Sleep(30 * time.Minute)
		if h := b.reg.count("HEAD /v2/fleet/shop/manifests/prod") - heads; h < 25 || h > 35 {
			t.Errorf("%d polls in 30 minutes, want one a minute", h)
		}
		if g := b.reg.count("GET /v2/fleet/shop/"); g != gets {
			t.Errorf("an unchanged bundle is downloaded %d times", g-gets)
		}
		b.push(t, bad)
		time.Sleep(3 * time.Minute)
		if s := b.Status(); s.Running() != bad.Digest || s.Good != good.Digest || !strings.Contains(s.Waits, "bad1-n") {
			t.Fatalf("%+v", s)
		}
		time.Sleep(4 * time.Minute)
		s := b.Status()
		if s.Running() != good.Digest || s.Rejected == nil || s.Rejected.Digest != bad.Digest || !strings.Contains(s.Rejected.Reason, "not healthy within 5m0s: bad1-n") {
			t.Fatalf("%+v", s)
		}
		b.end()
		reg := b.reg
		b = begin(t, d, n, func(c *Config) { c.Registry.Transport = reg })
		b.reg = reg
		time.Sleep(time.Hour)
		if got, want := n.ran(), " good1-n bad1-n good1-n good1-n"; got != want {
			t.Errorf("pods %q ran, want %q", got, want)
		}
		again := manifests(t, "again")
		b.push(t, again)
		time.Sleep(2 * time.Minute)
		if s := b.Status(); s.Good != again.Digest || s.Before != good.Digest {
			t.Errorf("%+v", s)
		}
		if err := b.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.Rollback(t.Context()); !errors.Is(err, ErrNoBefore) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if s := b.Status(); s.Good != good.Digest || s.Rejected.Reason != byUser {
			t.Errorf("%+v", s)
		}
		b.end()
	})
}

// A node outside of the part of the fleet does not take a bundle, and takes one for more nodes.
func TestPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, freshDisk(), &node{}, nil)
		at := place("n")
		few, err := Build(manifests(t, "a").Files, Rollout{Percent: max(at, 1)})
		if err != nil {
			t.Fatal(err)
		}
		b.push(t, few)
		time.Sleep(2 * time.Minute)
		if s := b.Status(); s.Running() != "" || s.Rejected == nil || !strings.Contains(s.Rejected.Reason, fmt.Sprintf("this node has the place %d", at)) {
			t.Errorf("%+v", s)
		}
		more, err := Build(few.Files, Rollout{Percent: at + 1})
		if err != nil {
			t.Fatal(err)
		}
		b.push(t, more)
		time.Sleep(2 * time.Minute)
		if s := b.Status(); s.Good != more.Digest {
			t.Errorf("%+v", s)
		}
		b.end()
	})
}

// The pods of the bundle before run until all images are there.
func TestImagesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		b := begin(t, freshDisk(), n, func(c *Config) { c.Ref = "" })
		first, second, third := manifests(t, "first"), manifests(t, "second"), manifests(t, "third")
		if err := b.Apply(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n.set(errors.New("no such image"))
		if err := b.Apply(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := b.Status(); s.Running() != first.Digest || s.Next == nil || !strings.Contains(s.Waits, "no such image") {
			t.Errorf("%+v", s)
		}
		// Another one replaces it.
		if err := b.Apply(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		n.set(nil)
		time.Sleep(time.Minute)
		if s := b.Status(); s.Good != third.Digest || s.Before != first.Digest {
			t.Errorf("%+v", s)
		}
		if got, want := n.ran(), " first1-n third1-n"; got != want {
			t.Errorf("pods %q ran, want %q", got, want)
		}
		b.end()
	})
}

// During a trial no other bundle is accepted; a user can end it, and try a rejected bundle again.
func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := errors.New("no signature")
		var refused error
		b := begin(t, freshDisk(), &node{}, func(c *Config) {
			c.Ref = ""
			c.Verify = func(context.Context, string, string, func(context.Context, string, string, int64) ([]byte, error)) error {
				return refused
			}
		})
		bad, other := manifests(t, "bad"), manifests(t, "other")
		if err := b.Apply(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := b.Apply(t.Context(), other); !errors.Is(err, ErrOnTrial) {
			t.Error(err)
		}
		if err := b.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if s := b.Status(); s.Running() != "" || s.Rejected == nil || s.Rejected.Reason != byUser {
			t.Errorf("%+v", s)
		}
		if err := b.Apply(t.Context(), bad); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if s := b.Status(); s.Running() != bad.Digest {
			t.Errorf("%+v", s)
		}
		refused = refuse
		if err := b.Apply(t.Context(), other); !errors.Is(err, refuse) {
			t.Error(err)
		}
		b.end()
	})
}

// A disk that fails keeps the pods as they are, and the step is made when the disk works.
func TestDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, n := freshDisk(), &node{}
		b := begin(t, d, n, func(c *Config) { c.Ref = "" })
		synctest.Wait()
		a := manifests(t, "a")
		if err := b.Apply(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.cutAt(0)
		time.Sleep(time.Minute)
		if s := b.Status(); s.Good != "" || !strings.Contains(s.Waits, errPower.Error()) {
			t.Errorf("%+v", s)
		}
		d.cutAt(-1)
		time.Sleep(2 * time.Second)
		if s := b.Status(); s.Good != a.Digest {
			t.Errorf("%+v", s)
		}
		b.end()
	})
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Whatever a registry answers, the pods stay, the node asks again with back-off, and takes the
// bundle when the registry is right again.
func TestRegistryThatLies(t *testing.T) {
	good, next := manifests(t, "good"), manifests(t, "next")
	isBlob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	isManifest := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
	}
	for name, lie := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"down": func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		},
		"endless blob": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				_, _ = io.CopyN(w, endless{}, 2*maxLayer)
			}
			return isBlob(r)
		},
		"endless manifest": func(w http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				_, _ = io.CopyN(w, endless{}, 2*maxLayer)
			}
			return isManifest(r)
		},
		"truncated blob": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				_, _ = w.Write(next.layer[:10])
			}
			return isBlob(r)
		},
		"another manifest": func(w http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				_, _ = w.Write(good.manifest)
			}
			return isManifest(r)
		},
		"no digest": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(http.StatusOK)
			}
			return r.Method == http.MethodHead
		},
		"redirect without TLS": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				http.Redirect(w, r, "http://registry.example/blob", http.StatusFound)
			}
			return isBlob(r)
		},
		"another bundle's blob": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				_, _ = io.Copy(w, bytes.NewReader(good.layer))
			}
			return isBlob(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := begin(t, freshDisk(), &node{}, nil)
				b.push(t, good)
				time.Sleep(2 * time.Minute)
				b.push(t, next)
				honest := b.reg.h
				b.reg.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !lie(w, r) {
						honest.ServeHTTP(w, r)
					}
				}))
				heads := b.reg.count("HEAD /v2/fleet/shop/manifests/") + b.reg.count("GET /v2/ ")
				time.Sleep(2 * time.Hour)
				if s := b.Status(); s.Running() != good.Digest || s.PollError == "" || s.Next != nil || s.Rejected != nil {
					t.Errorf("%+v", s)
				}
				if n := b.reg.count("HEAD /v2/fleet/shop/manifests/") + b.reg.count("GET /v2/ ") - heads; n > 40 {
					t.Errorf("%d polls in two hours of failures", n)
				}
				b.reg.set(honest)
				time.Sleep(15 * time.Minute)
				if s := b.Status(); s.Good != next.Digest || s.PollError != "" {
					t.Errorf("%+v", s)
				}
				b.end()
			})
		})
	}
}

// What has the right digest and is no valid bundle is rejected with the reason, once.
func TestInvalidBundleOfARegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, freshDisk(), &node{}, nil)
		broken := manifests(t, "a")
		broken.layer = packed(t)
		m := *broken
		m.manifest = bytes.ReplaceAll(m.manifest, []byte(describe(layerType, manifests(t, "a").layer).Digest), []byte(describe(layerType, m.layer).Digest))
		m.manifest = bytes.ReplaceAll(m.manifest, fmt.Appendf(nil, `"size":%d}]`, len(manifests(t, "a").layer)), fmt.Appendf(nil, `"size":%d}]`, len(m.layer)))
		b.push(t, &m)
		time.Sleep(2 * time.Minute)
		gets := b.reg.count("GET")
		if s := b.Status(); s.Running() != "" || s.Rejected == nil || !strings.Contains(s.Rejected.Reason, "has no pods") || s.PollError != "" {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if n := b.reg.count("GET /v2/fleet/"); n > gets {
			t.Errorf("%d downloads, want one", n)
		}
		b.end()
	})
}

func TestPlainHTTP(t *testing.T) {
	reg := Registry{Transport: &inProcess{h: http.NotFoundHandler()}}
	for _, ref := range []string{"10.0.0.1:5000/a/b:c", "registry.local/a/b:c"} {
		if _, err := reg.Resolve(t.Context(), ref); err == nil || strings.Contains(fmt.Sprint(reg.Transport.(*inProcess).seen), "http://") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for _, ref := range []string{"", "shop:prod", "registry.example/shop", "http://registry.example/shop:prod"} {
		if _, err := reg.Resolve(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "REGISTRY/NAME:TAG") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// Over a real connection.
func TestLoopback(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/fleet/shop:prod"
	b := manifests(t, "a")
	if err := (Registry{}).Push(t.Context(), ref, b); err != nil {
		t.Fatal(err)
	}
	digest, err := Registry{}.Resolve(t.Context(), ref)
	if err != nil || digest != b.Digest {
		t.Fatal(digest, err)
	}
	got, err := Registry{}.Fetch(t.Context(), ref, digest)
	if err != nil || got.Digest != b.Digest || len(got.Files) != 1 {
		t.Error(got, err)
	}
}

func TestNew(t *testing.T) {
	for want, cfg := range map[string]Config{
		"NodeName": {Store: freshDisk(), Node: &node{}},
		"Store":    {NodeName: "n", Node: &node{}},
		"Node":     {NodeName: "n", Store: freshDisk()},
		"Ref":      {NodeName: "n", Store: freshDisk(), Node: &node{}, Ref: "shop"},
		"Interval": {NodeName: "n", Store: freshDisk(), Node: &node{}, Interval: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
