package podruntime

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Names and paths come from labels that anybody could have made: nothing
// outside the log directory is removed.
func TestRemoveStaysInTheLogDirectory(t *testing.T) {
	root := t.TempDir()
	logs := filepath.Join(root, "logs")
	for _, d := range []string{"logs/ns_pod_u/c", "victim"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"logs/ns_pod_u/c/0.log", "logs/ns_pod_u/c/0.log.20260101-000000", "victim/0.log"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if _, err := os.Stat(filepath.Join(root, w)); err != nil {
				t.Errorf("%s is gone", w)
			}
		}
	}
	for _, path := range []string{logs + "/../victim/0.log", filepath.Join(root, "victim/0.log"), ""} {
		if err := m.removeContainer(t.Context(), "u", &observed.Container{ID: "x", LogPath: path}); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range []types.UID{"/../../victim", "u/c"} {
		if err := m.Remove(t.Context(), &observed.Pod{UID: uid, Namespace: "ns", Name: "pod"}); err != nil {
			t.Error(err)
		}
	}
	left("victim/0.log", "logs/ns_pod_u/c/0.log.20260101-000000")

	if err := m.removeContainer(t.Context(), "u", &observed.Container{ID: "x", LogPath: logs + "/ns_pod_u/c/0.log"}); err != nil {
		t.Error(err)
	}
	if e, err := os.ReadDir(filepath.Join(logs, "ns_pod_u/c")); err != nil || len(e) > 0 {
		t.Errorf("logs of a removed container: %v, %v", e, err)
	}
	if err := m.Remove(t.Context(), &observed.Pod{UID: "u", Namespace: "ns", Name: "pod"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(logs, "ns_pod_u")); !os.IsNotExist(err) {
		t.Errorf("the logs of a removed pod are there: %v", err)
	}
}
