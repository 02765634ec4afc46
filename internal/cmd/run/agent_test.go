package main

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestCountPods(t *testing.T) {
	n, err := countPods(filepath.Join("..", "..", "..", "examples", "manifests"))
	if err != nil || n != 2 {
		t.Errorf("examples/manifests has %d pods, %v; want 2", n, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".hidden.yaml"), []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countPods(dir); n != 0 || err != nil {
		t.Errorf("a hidden file counts: %d, %v", n, err)
	}
}

func TestRuns(t *testing.T) {
	ready := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	for _, c := range []struct {
		name   string
		status v1.PodStatus
		want   bool
	}{
		{"nothing known", v1.PodStatus{}, false},
		{"running, not ready", v1.PodStatus{Phase: v1.PodRunning}, false},
		{"running, ready", v1.PodStatus{Phase: v1.PodRunning, Conditions: ready}, true},
		{"over", v1.PodStatus{Phase: v1.PodSucceeded}, true},
		{"failed", v1.PodStatus{Phase: v1.PodFailed, Conditions: ready}, false},
	} {
		if got := runs(&v1.Pod{Status: c.status}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
