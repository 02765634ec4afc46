package localapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// heap is what is in use, in MiB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// create makes n ConfigMaps, and returns how many were refused with 429.
func (a *api) create(n int) (refused int64) {
	var more atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				switch code, text := a.do("POST", configMaps, asJSON, fmt.Sprintf(`{"metadata":{"name":"many-%05d"},"data":{"k":%q}}`, i, strings.Repeat("x", 200))); code {
				case http.StatusCreated:
				case http.StatusTooManyRequests:
					more.Add(1)
				default:
					a.t.Errorf("%d: %s", code, text)
				}
			}
		})
	}
	wg.Wait()
	return more.Load()
}

// As many objects and watchers as there may be, and twice as many who ask: those within
// the bounds are served, all others are told so, and nothing is left of them.
func TestMany(t *testing.T) {
	const objects, watchers = 10_000, 500 // the defaults of Config
	before := heap()
	a := start(t, &store.Memory{})
	began := time.Now()
	if refused := a.create(objects + 500); refused < 500 || refused > 510 { // the node's own are counted
		t.Errorf("%d of %d objects are refused", refused, objects+500)
	}
	t.Logf("%d objects made in %v; %.1f MiB", objects, time.Since(began).Round(time.Millisecond), heap()-before)

	began = time.Now()
	l := must[v1.ConfigMapList](a, "GET", configMaps, "", nil)
	whole := time.Since(began)
	pages, listed, at := 0, 0, ""
	for began = time.Now(); pages == 0 || at != ""; pages++ {
		page := must[v1.ConfigMapList](a, "GET", configMaps+"?limit=500&continue="+at, "", nil)
		listed, at = listed+len(page.Items), page.Continue
	}
	if listed != len(l.Items) || pages < 20 {
		t.Errorf("%d objects in %d pages, %d in one list", listed, pages, len(l.Items))
	}
	t.Logf("listed in %v, by 500 in %v", whole.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served, refused atomic.Int64
	told := make(chan string, 2*watchers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var asked sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{}}
	for range 2 * watchers {
		asked.Add(1)
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+configMaps+"?watch=1&resourceVersion="+l.ResourceVersion, nil)
			if err != nil {
				t.Error(err)
			}
			resp, err := client.Do(req)
			switch {
			case err != nil:
				t.Error(err)
			case resp.StatusCode == http.StatusOK:
				served.Add(1)
			case resp.StatusCode == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("a watch is answered %s", resp.Status)
			}
			asked.Done()
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return
			}
			lines := bufio.NewScanner(resp.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				var e struct {
					Type   string
					Object metav1.PartialObjectMetadata
				}
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
					t.Error(err)
				}
				told <- e.Type + " " + e.Object.Name
			}
		})
	}
	asked.Wait()
	if served.Load() != watchers || refused.Load() != watchers {
		t.Fatalf("%d watches are served, %d refused", served.Load(), refused.Load())
	}
	with := heap()
	began = time.Now()
	must[metav1.Status](a, "DELETE", configMaps+"/many-00007", "", nil)
	for range watchers {
		if got := <-told; got != "DELETED many-00007" {
			t.Errorf("a watcher is told %q", got)
		}
	}
	t.Logf("%d watchers told in %v; %.1f MiB with them and their clients", watchers, time.Since(began).Round(100*time.Microsecond), with-before)
	cancel()
	wg.Wait()
	until(t, "the watchers' places are free", func() bool {
		code, _ := a.do("GET", configMaps+"?watch=1&timeoutSeconds=1&labelSelector=none", "", "")
		return code == http.StatusOK
	})
}
