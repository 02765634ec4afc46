package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/zap/zaptest"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/localcri"
)

// newNodeAlone is a lab without containerd: the agent, runc and images in files.
func newNodeAlone(t *testing.T) *lab {
	containerdtest.Required(t)
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(repository, "build", "bin")+":"+os.Getenv("PATH"))
	l := &lab{t: t, plant: newPlant(), runtime: []string{"--images", filepath.Dir(archives[0])}}
	dir, err := os.MkdirTemp("", "nwedge")
	l.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l.must(os.Chmod(dir, 0o711)) //nolint:gosec // containers of any user pass through
	l.said, err = os.Create(filepath.Join(dir, "said"))
	l.must(err)
	srv := httptest.NewServer(l.plant)
	t.Cleanup(srv.Close)
	l.url, l.root = srv.URL, filepath.Join(dir, "edge")
	l.api = local.NewClient(filepath.Join(l.root, "agent.sock"))
	t.Cleanup(l.end)
	t.Cleanup(func() {
		if l.cmd != nil {
			l.kill()
		}
		if err := localcri.Reset(context.Background(), localcri.InProcessConfig{RootDir: filepath.Join(l.root, "localcri"), Log: zaptest.NewLogger(t)}, localcri.ResetOptions{Images: true}); err != nil {
			t.Errorf("reset: %v", err)
		}
	})
	return l
}

// One program and runc are a node: its pods outlive it, and leave nothing.
func TestNodeAlone(t *testing.T) {
	l := newNodeAlone(t)
	l.order(box("press", "vision"), box("gauge", ""))
	l.start()
	l.untilReady("press", "gauge")
	ids := func() (ids []string) {
		for _, p := range l.until("pods", func(pods map[string]*v1.Pod) bool { return ready(pods["press"]) && ready(pods["gauge"]) }) {
			ids = append(ids, p.Status.ContainerStatuses[0].ContainerID, p.Status.PodIP)
		}
		slices.Sort(ids)
		return ids
	}
	before := ids()
	l.kill()
	l.start()
	if after := ids(); !slices.Equal(after, before) {
		t.Errorf("containers and addresses %v after the agent was killed, want %v", after, before)
	}
	l.order()
	left := func() (left []string) {
		for _, kind := range []string{"sandboxes", "containers"} {
			entries, err := os.ReadDir(filepath.Join(l.root, "localcri", "pods", "records", kind))
			l.must(err)
			for _, e := range entries {
				left = append(left, kind+" "+e.Name())
			}
		}
		return left
	}
	// A pod that is withdrawn before the agent has come to it again is shown no more, and goes nevertheless.
	l.until("nothing left", func(pods map[string]*v1.Pod) bool { return len(pods)+l.outstanding()+len(left()) == 0 })
	l.must(l.cmd.Process.Signal(syscall.SIGTERM))
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the agent ends with %v", err)
	}
	l.cmd = nil
	if left := left(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
