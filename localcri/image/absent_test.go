//go:build linux

package image

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// A mirror without a connection costs the time limit for a connection once in a minute, for
// whatever number of images and layers.
func TestAbsentMirror(t *testing.T) {
	origin := newServer()
	for _, app := range []string{"one", "two"} {
		origin.image(t, app, "1", nil, archive(t, file(app, "x")), archive(t, file(app+app, "y")))
	}
	cfg := testConfig(t, nil)
	cfg.Registries = map[string]Registry{host: {Mirrors: []Mirror{{Host: "down.test"}}}}
	requests := &counted{next: memory{host: origin}, of: map[string]int{}}
	cfg.transport = func(Endpoint) http.RoundTripper { return requests }
	s, _ := start(t, cfg)
	for _, app := range []string{"one", "two"} {
		_, err := s.PullImage(t.Context(), spec(host+"/"+app+":1"), nil, nil)
		must(t, err)
	}
	if n := requests.of["down.test"]; n != 1 {
		t.Errorf("down.test was asked %d times; want 1", n)
	}
}

// counted counts the requests of a transport by host.
type counted struct {
	next http.RoundTripper
	mu   sync.Mutex
	of   map[string]int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.of[r.URL.Host]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

func TestAbsentOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []*endpoint
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			repo, err := name.NewRepository(host + "/app")
			must(t, err)
			ends = append(ends, &endpoint{repo: repo})
		}
		hosts := func(ends []*endpoint) (all string) {
			for _, e := range ends {
				all += e.repo.RegistryStr()[:1]
			}
			return all
		}
		var a absent
		for _, step := range []struct {
			add  string
			wait time.Duration
			want string
		}{
			{"", 0, "abc"},
			{"a.test", 0, "bca"},
			{"c.test", absentTime / 2, "bac"},
			{"", absentTime / 2, "bac"},
			{"a.test", 0, "bca"},
			{"b.test", 0, "cab"},
			{"c.test", 0, "abc"}, // all of them
			{"", absentTime, "abc"},
		} {
			if step.add != "" {
				a.add(step.add)
			}
			if got := hosts(a.last(ends)); got != step.want {
				t.Errorf("after %q: %s; want %s; absent: %v", step.add, got, step.want, slices.Collect(maps.Keys(a.until)))
			}
			time.Sleep(step.wait)
		}
		if got := hosts(ends); got != "abc" {
			t.Errorf("the endpoints themselves were sorted: %s", got)
		}
	})
}
