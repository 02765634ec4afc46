package agent_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

func TestWhatRunsByTheRuntimesNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, n, c := t.Context(), newNode(t), newCluster()
		n.cluster, n.want = c, []*v1.Pod{newPod("a", runs("main"), runs("ends", "exit", "0"))}
		n.want[0].Spec.RestartPolicy = v1.RestartPolicyNever
		l := n.start()
		time.Sleep(time.Minute)
		settle()

		pods, err := l.RunningPods(ctx)
		if err != nil || len(pods) != 1 || pods[0].UID != "uid-a" || len(pods[0].Spec.Containers) != 1 || pods[0].Spec.Containers[0].Name != "main" {
			t.Errorf("got %+v, %v", pods, err)
		}
		id, err := l.ContainerID(ctx, "uid-a", "main")
		if err != nil {
			t.Error(err)
		}
		if mirrored, err := l.ContainerID(ctx, "mirror-1", "main"); err != nil || mirrored != id {
			t.Errorf("by the mirror's UID: %q, %v", mirrored, err)
		}
		for _, name := range []string{"ends", "none"} {
			if _, err := l.ContainerID(ctx, "uid-a", name); !errors.Is(err, local.ErrNotFound) {
				t.Errorf("container %q: got %v", name, err)
			}
		}
		if id, err := l.SandboxID(ctx, "uid-a"); err != nil || id == "" {
			t.Errorf("sandbox %q, %v", id, err)
		}
		if _, err := l.SandboxID(ctx, "uid-b"); !errors.Is(err, local.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		all, err := l.Details()
		if err != nil || len(all) != 1 || all[0].UID != "uid-a" || all[0].Sandbox.ID == "" || len(all[0].Containers) != 1 || all[0].Containers[0].ID != id || all[0].Containers[0].Image == "" {
			t.Errorf("details %+v, %v", all, err)
		}
		path, open, err := l.LogFile(ctx, id)
		if err != nil || !open || !strings.HasPrefix(path, filepath.Join(n.root, "logs")) {
			t.Errorf("log %q, open %t, %v", path, open, err)
		}
		if _, _, err := l.LogFile(ctx, "none"); !errors.Is(err, local.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		l.stop()
	})
}

// The loop turns by itself when nothing happens.
func TestLastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		l := n.start()
		settle()
		for range 5 {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			at := l.LastTurn()
			if since := time.Since(at); since > time.Minute {
				t.Errorf("the last turn was at %v, %v ago", at, since)
			}
		}
		l.stop()
	})
}
