package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
)

func TestReadOrders(t *testing.T) {
	for body, want := range map[string]string{
		`[]`: "",
		`[{"name": "a", "image": "i"}, {"name": "b", "image": "i", "args": ["x"], "licence": "l"}]`: "",
		``:                                 "not a list of orders: EOF",
		`null`:                             "not a list of orders: null",
		`{}`:                               "not a list of orders: json: cannot unmarshal object",
		`[] []`:                            "data after the list",
		`[{"name": "a", "imgae": "i"}]`:    `unknown field "imgae"`,
		`[{"name": "../a", "image": "i"}]`: `order 1: name "../a"`,
		`[{"name": "a", "image": " "}]`:    `order 1: image " "`,
		`[{"name": "a", "image": "i"}, {"name": "a", "image": "j"}]`: `order 2: name "a": duplicate`,
	} {
		_, err := readOrders([]byte(body))
		if got := ""; err != nil {
			got = err.Error()
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %q", body, got, want)
			}
		} else if want != "" {
			t.Errorf("%s: read, want %q", body, want)
		}
	}
}

func FuzzReadOrders(f *testing.F) {
	f.Add([]byte(`[{"name": "a", "image": "i", "args": ["x"]}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := readOrders(body)
		if err != nil && list != nil {
			t.Errorf("half a list beside %v", err)
		}
		for _, o := range list {
			if o.pod().UID != o.uid() || strings.ContainsAny(o.Name, "/.") {
				t.Errorf("order %+v", o)
			}
		}
	})
}

func TestUID(t *testing.T) {
	a := order{Name: "a", Image: "i", Args: []string{"x"}}
	if b := (order{Name: "a", Image: "i", Args: []string{"y"}}); a.uid() == b.uid() {
		t.Error("orders that differ have one UID")
	}
	if got := a.uid(); got != "ba13a6b7600b684b84409ea9b6bcec5a" {
		t.Errorf("UID %s: those of pods that run would change with the agent's version", got)
	}
}

// delivered is a source at work, and what it delivered.
type delivered struct {
	*plant
	snaps []podmgr.Snapshot
	hang  bool
}

func (d *delivered) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return d.plant.RoundTrip(r)
}

// names are the pods of the last snapshot, and what is wrong with it.
func (d *delivered) names() string {
	if len(d.snaps) == 0 {
		return "-"
	}
	var names []string
	last := d.snaps[len(d.snaps)-1]
	for _, p := range last.Pods {
		names = append(names, p.Name)
	}
	for _, p := range last.Problems {
		names = append(names, p.Reason)
	}
	return strings.Join(names, " ")
}

func (d *delivered) run(t *testing.T, s *orders) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, func(snap podmgr.Snapshot) { d.snaps = append(d.snaps, snap) }) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// What cannot be read keeps what was wanted before.
func TestSourceKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &delivered{plant: newPlant()}
		d.say("{")
		s := sourceOf(t, d, t.TempDir())
		defer d.run(t, s)()
		step := func(what, want string) {
			t.Helper()
			after(90 * time.Second) // longer than any pause
			if got := d.names(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		step("never a good list", "-")
		d.order(app("a", ""), app("b", ""))
		step("a good list", "a b")
		d.say("[{}]")
		step("a bad list", `a b order 1: name ""`)
		d.say("[" + strings.Repeat(" ", maxAnswer) + "]")
		step("a huge one", "a b")
		d.order(app("a", ""), app("b", ""))
		step("the good list again", "a b")
		if n := len(d.snaps[len(d.snaps)-1].Problems); n != 0 {
			t.Errorf("%d problems are left", n)
		}
		n := len(d.snaps)
		d.mu.Lock()
		d.hang = true
		d.mu.Unlock()
		d.order()
		step("a server that hangs", "a b")
		if len(d.snaps) != n {
			t.Errorf("%d snapshots without news", len(d.snaps)-n)
		}
		d.mu.Lock()
		d.hang = false
		d.mu.Unlock()
		step("well again", "")
		if got := d.names(); got != "" {
			t.Errorf("withdrawn orders are still there: %s", got)
		}
	})
}

// A server that fails is asked less and less often, and never in a hurry.
func TestSourcePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asks []time.Duration
		begin := time.Now()
		fail := roundTrip(func(*http.Request) (*http.Response, error) {
			asks = append(asks, time.Since(begin))
			return nil, errors.New("no route")
		})
		d := &delivered{plant: newPlant()}
		stop := d.run(t, sourceOf(t, fail, t.TempDir()))
		after(2 * time.Minute)
		stop()
		want := []time.Duration{0, 2 * time.Second, 6 * time.Second, 14 * time.Second, 30 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute}
		if len(asks) != len(want) || asks[4] != want[4] || asks[6] != want[6] {
			t.Errorf("asked at %v, want %v", asks, want)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// brokenStore is a disk that takes nothing, and has nothing good.
type brokenStore struct{ part.Store }

var errDisk = errors.New("no space left on device")

func (brokenStore) Read(string) ([]byte, error) { return []byte("["), nil }
func (brokenStore) Write(string, []byte) error  { return errDisk }
func (brokenStore) Delete(string) error         { return fs.ErrNotExist }
func (brokenStore) Keys() ([]string, error)     { return nil, errDisk }

func TestSourceWithoutDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &delivered{plant: newPlant()}
		d.order(app("a", ""))
		s, err := newOrders("http://plant/orders", brokenStore{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		s.client.Transport = d
		defer d.run(t, s)()
		if got := d.names(); got != "a" {
			t.Errorf("delivered %q", got)
		}
	})
}

func TestURLs(t *testing.T) {
	if _, err := newOrders("ftp://x", nil, nil); err == nil || err.Error() != `--orders is "ftp://x"; an http or https URL is required` {
		t.Error(err)
	}
	if _, err := newLicences("", nil); err == nil {
		t.Error("no URL is taken")
	}
}
