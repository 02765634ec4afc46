package kubeapi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// drivers are those that are connected.
type drivers struct {
	mu   sync.Mutex
	list []string
}

func (d *drivers) set(w *kubeapi.SliceWiper, list ...string) {
	d.mu.Lock()
	d.list = list
	d.mu.Unlock()
	w.Changed()
}

func (d *drivers) get() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// calls are the selectors of what was deleted.
type calls struct {
	mu   sync.Mutex
	list []string
	at   []time.Time
	err  error
}

func (c *calls) DeleteAll(_ context.Context, _ kubeapi.Resource, _ string, opts metav1.ListOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.at = append(c.list, opts.FieldSelector), append(c.at, time.Now())
	return c.err
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.list
	c.list, c.at = nil, nil
	return out
}

func (c *calls) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func run(t *testing.T, client kubeapi.SliceClient, d *drivers, name string) (w *kubeapi.SliceWiper, stop func()) {
	t.Helper()
	w, err := kubeapi.NewSliceWiper(kubeapi.SliceWiperConfig{Client: client, NodeName: name, Connected: d.get})
	if err != nil {
		t.Fatal(err)
	}
	return w, testrun.Start(t, w.Run)
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// What drivers of before have left goes after 30 s, what one leaves that goes 30 s
// after it; one that comes back in time keeps its own.
func TestWhatIsDeletedAndWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &calls{}, &drivers{}
		w, stop := run(t, c, d, "n1")
		defer stop()
		want := func(what string, list ...string) {
			t.Helper()
			synctest.Wait()
			if got := c.take(); !slices.Equal(got, list) {
				t.Errorf("%s: deleted %q, want %q", what, got, list)
			}
		}
		after(10 * time.Second)
		d.set(w, "b.com", "a.com", "a.com")
		after(19 * time.Second)
		want("before its time")
		after(2 * time.Second)
		want("at the start", "spec.nodeName=n1,spec.driver!=a.com,spec.driver!=b.com")
		after(time.Hour)
		want("at rest")
		d.set(w, "a.com")
		after(20 * time.Second)
		d.set(w, "a.com", "b.com")
		after(time.Hour)
		want("of one that came back")
		d.set(w, "a.com")
		after(20 * time.Second)
		d.set(w)
		after(11 * time.Second)
		want("of one that went", "spec.nodeName=n1,spec.driver!=a.com")
		after(20 * time.Second)
		want("of the other", "spec.nodeName=n1")
		after(time.Hour)
		want("at rest again")
	})
}

// A call that fails is made again, with pauses that grow, and not more often because
// drivers come and go.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &calls{err: errors.New("no server")}, &drivers{}
		w, stop := run(t, c, d, "n1")
		defer stop()
		for range 60 {
			after(time.Second)
			d.set(w, "a.com")
		}
		if n := len(c.take()); n < 4 || n > 6 { // after 30, 31, 33, 37, 45 s
			t.Errorf("%d tries in half a minute", n)
		}
		after(time.Hour)
		if n := len(c.take()); n > 20 {
			t.Errorf("%d tries in an hour", n)
		}
		c.fail(nil)
		after(6 * time.Minute)
		if got := c.take(); len(got) != 1 || got[0] != "spec.nodeName=n1,spec.driver!=a.com" {
			t.Errorf("deleted %q", got)
		}
	})
}

// The names of drivers are not trusted, and an API server selects as is meant.
func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kubeapitest.New()
		for name, spec := range map[string][2]string{"mine": {"n1", "gone.com"}, "kept": {"n1", "a,b=c"}, "other": {"n2", "gone.com"}} {
			s.Create(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{NodeName: &spec[0], Driver: spec[1]}})
		}
		client, err := kubeapi.New(kubeapi.Config{REST: s.Config()})
		if err != nil {
			t.Fatal(err)
		}
		_, stop := run(t, client, &drivers{list: []string{"a,b=c"}}, "n1")
		after(31 * time.Second)
		stop()
		var left []string
		for _, o := range s.All(kubeapi.ResourceSlices) {
			left = append(left, o.(*resourceapi.ResourceSlice).Name)
		}
		slices.Sort(left)
		if strings.Join(left, " ") != "kept other" {
			t.Errorf("left are %q", left)
		}
	})
}

// A server that has no ResourceSlices is asked once.
func TestServerWithoutSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{err: kubeapitest.Status(404)}
		_, stop := run(t, c, &drivers{}, "n1")
		defer stop()
		after(time.Hour)
		if n := len(c.take()); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestSliceConfig(t *testing.T) {
	if _, err := kubeapi.NewSliceWiper(kubeapi.SliceWiperConfig{}); err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("%v", err)
	}
}
