package dra_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

// Claims that a kubelet prepared for running pods are not prepared again, and those of removed
// pods are unprepared. The kubelet can read the claims prepared since.
func TestFromKubelet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		dir := t.TempDir()
		file := filepath.Join(dir, "dra_manager_state")
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.cfg.KubeletDir = dir
		r.restart(nil, r.gpu) // a damaged file is ignored
		r.claims.put(claim("a", "p"), claim("b", "q"), claim("c", "s"))
		r.prepare(pod("p", "a"))
		r.prepare(pod("q", "b"))
		r.gpu.called()
		r.stop()
		kubelets, err := os.ReadFile(file) // by now that of a kubelet which prepared both
		if err != nil || !strings.Contains(string(kubelets), `\"ClaimName\":\"b\"`) {
			t.Fatalf("%s, %v", kubelets, err)
		}

		r.store = &checkpointtest.Disk{}
		r.cfg.Store = r.store
		r.start(map[types.UID][]string{"p": {"main"}})
		r.offer(r.gpu)
		r.prepare(pod("p", "a"))
		r.called("")
		if ids, err := r.Attachment(pod("p", "a"), "main"); err != nil || len(ids) != 1 {
			t.Errorf("attached %v, %v", ids, err)
		}
		r.prepare(pod("s", "c"))
		r.called("prepare c")
		r.unprepare("q")
		r.called("unprepare b")
		r.stop()
		if got, err := os.ReadFile(file); err != nil || strings.Contains(string(got), `\"b\"`) || !strings.Contains(string(got), `\"ClaimName\":\"c\"`) {
			t.Errorf("the kubelet's file says %s, %v", got, err)
		}

		// The own records say more the next time.
		r.claims.hang = true
		r.start(map[types.UID][]string{"p": {"main"}, "s": {"main"}})
		r.prepare(pod("p", "a"))
		r.prepare(pod("s", "c"))
		r.claims.hang = false
	})
}
