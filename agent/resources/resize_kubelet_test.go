package resources_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
)

// A pod that waited for a resize with the kubelet waits on, and the kubelet finds what
// was allocated since, and to whom.
func TestFromKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "allocated_pods_state")
		write := func(data string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("{")
		store := part.OpenStore(t.TempDir()+"/grants", nil)
		n := restoredBeside(t, store, dir) // what is damaged is ignored
		a, b := resizeSized("a", "1Gi"), resizeSized("b", "4Gi")
		n.host.SetPods(a, b)
		n.Recall(a, nothing(a))
		n.Recall(b, nothing(b))
		n.wantRuns(n.Allocated(b), "4Gi")
		n.stop()
		synctest.Wait()

		kubelets, err := os.ReadFile(file) // as a whole file by now
		if err != nil || !strings.Contains(string(kubelets), "4Gi") {
			t.Fatalf("%s, %v", kubelets, err)
		}
		pair, err := os.ReadFile(filepath.Join("testdata", "allocated_pods_state.pair")) // a and b with 1Gi, by a kubelet
		if err != nil {
			t.Fatal(err)
		}
		write(string(pair))
		n = restoredBeside(t, store, dir)
		c := resizeSized("c", "1Gi")
		n.host.SetPods(a, b, c)
		for _, pod := range []*v1.Pod{a, b, c} {
			n.Recall(pod, nothing(pod))
		}
		n.wantRuns(n.Allocated(a), "1Gi")
		n.wantRuns(n.Allocated(b), "1Gi")
		n.Housekeep(nil)
		if got := n.conditions(b.UID); !strings.HasPrefix(got, "PodResizePending Deferred") {
			t.Errorf("b: %s", got)
		}
		for _, pod := range []*v1.Pod{a, b, c} {
			n.prepare(pod)
		}
		n.stop()
		synctest.Wait()
		if got, err := os.ReadFile(file); err != nil || strings.Contains(string(got), "4Gi") || !strings.Contains(string(got), "uid-c") {
			t.Errorf("the kubelet's file says %s, %v", got, err)
		}

		// Its own record says it the next time.
		n = restoredBeside(t, store, dir)
		n.host.SetPods(a, b, c)
		n.Recall(b, nothing(b))
		n.wantRuns(n.Allocated(b), "1Gi")
		n.stop()
	})
}
