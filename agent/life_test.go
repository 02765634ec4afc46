package agent

import (
	"context"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// noPods is a source that wants nothing.
type noPods struct{}

func (noPods) Name() string                                           { return "none" }
func (noPods) Run(ctx context.Context, _ func(podmgr.Snapshot)) error { <-ctx.Done(); return nil }

// resting returns an agent that does not run.
func resting(t *testing.T) *Agent {
	t.Helper()
	dir, rt := t.TempDir(), critest.New()
	a, err := New(Config{
		Node:    node.Machine{Name: "node"},
		Paths:   Paths{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "logs")},
		Runtime: rt, Images: Images{Service: rt}, Sources: []podmgr.Source{noPods{}}, DNS: DNS{ResolvConf: "-"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A status of life one that comes when life two has begun does not end life two.
func TestNoStatusOfAnEarlierLife(t *testing.T) {
	a := resting(t)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "web", Namespace: "default"}}
	over := statusmgr.Report{Life: a.life(pod).N, Status: v1.PodStatus{Phase: v1.PodFailed}}
	a.setStatus(pod, over)
	if ph, _ := a.statuses.Phase("u"); ph != v1.PodFailed {
		t.Fatalf("phase %q of life one", ph)
	}
	a.nextLife(pod)
	a.setStatus(pod, over)
	if last, ok := a.statuses.Last("u"); ok {
		t.Errorf("life two begins with %+v", last)
	}
	a.setStatus(pod, statusmgr.Report{Life: 1, Status: v1.PodStatus{Phase: v1.PodRunning}})
	a.setStatus(pod, over)
	if last, _ := a.statuses.Last("u"); last.Life != 1 || last.Status.Phase != v1.PodRunning {
		t.Errorf("life two goes on with %+v", last)
	}
	if got, want := a.life(pod), (podlife.Life{UID: "u", N: 1}); got != want {
		t.Errorf("life %v, want %v", got, want)
	}
}
