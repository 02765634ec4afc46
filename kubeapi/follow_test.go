package kubeapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// scripted has watches that the test writes itself.
type scripted struct {
	watches chan *watch.FakeWatcher
	opts    chan metav1.ListOptions
}

func (s scripted) List(context.Context, kubeapi.Resource, string, metav1.ListOptions, runtime.Object) error {
	return errors.New("not here")
}

func (s scripted) Watch(ctx context.Context, _ kubeapi.Resource, _ string, opts metav1.ListOptions) (watch.Interface, error) {
	s.opts <- opts
	select {
	case w := <-s.watches:
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func followNode(version string, initial bool) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
	if initial {
		n.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return n
}

func nodes(c kubeapi.ListWatcher) kubeapi.FollowConfig[*v1.Node] {
	return kubeapi.FollowConfig[*v1.Node]{
		Client: c, Resource: kubeapi.Nodes, NewList: func() runtime.Object { return &v1.NodeList{} },
		Replace: func([]*v1.Node, string) {}, Put: func(*v1.Node) {}, Delete: func(*v1.Node) {},
	}
}

// A server that a watch goes on at but whose store is another one counts from
// the beginning: a bookmark reports.
func TestAServerWithAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := scripted{make(chan *watch.FakeWatcher), make(chan metav1.ListOptions, 10)}
		var failed []error
		cfg := nodes(c)
		cfg.Failed = func(err error, _ time.Duration) { failed = append(failed, err) }
		f, err := kubeapi.NewFollower(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, f.Run)
		if o := <-c.opts; o.SendInitialEvents == nil || o.ResourceVersion != "" || o.TimeoutSeconds == nil {
			t.Errorf("asked %+v", o)
		}
		w := watch.NewFake()
		c.watches <- w
		w.Action(watch.Added, followNode("900", false))
		w.Action(watch.Bookmark, followNode("1000", true))
		w.Action(watch.Bookmark, followNode("12", false))
		if o := <-c.opts; o.SendInitialEvents == nil || o.ResourceVersion != "" {
			t.Errorf("asked %+v", o)
		}
		stop()
		if len(failed) != 1 || !strings.Contains(failed[0].Error(), "resource version went back") {
			t.Errorf("failed with %v", failed)
		}
	})
}

// Pauses get longer, and a watch that ends at once is not begun again at once.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		cfg := nodes(client)
		cfg.Failed = func(_ error, d time.Duration) { pauses = append(pauses, d) }
		f, err := kubeapi.NewFollower(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, f.Run)
		srv.Stop()
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(pauses); n < 40 || n > 140 {
			t.Errorf("%d tries in ten minutes", n)
		}
		for i, d := range pauses {
			if least, most := min(100*time.Millisecond<<min(i, 10), 5*time.Second), 15*time.Second; d < least/2 || d > most {
				t.Errorf("pause %d is %v", i, d)
			}
		}
	})
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g kubeapi.Gate
		if !g.Wait(t.Context()) {
			t.Error("an open gate is closed")
		}
		g.Close()
		g.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.Wait(ctx) {
			t.Error("a closed gate is open")
		}
		begun := time.Now()
		time.AfterFunc(time.Minute, g.Open)
		if !g.Wait(t.Context()) || time.Since(begun) < time.Minute || time.Since(begun) > time.Minute+500*time.Millisecond {
			t.Errorf("waited %v", time.Since(begun))
		}
		if !(*kubeapi.Gate)(nil).Wait(t.Context()) {
			t.Error("no gate is closed")
		}
	})
}

func TestOlder(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"9", "10", true}, {"10", "9", false}, {"5", "5", false}, {"", "5", false}, {"x", "5", false}, {"5", "", false}} {
		if got := kubeapi.Older(tc.a, tc.b); got != tc.want {
			t.Errorf("Older(%q, %q) = %t", tc.a, tc.b, got)
		}
	}
}

func TestFollowConfig(t *testing.T) {
	_, err := kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Node]{})
	for _, want := range []string{"Client", "Resource", "NewList", "Replace", "Put", "Delete"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want+" is required") {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}
