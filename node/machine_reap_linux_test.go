package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestReap(t *testing.T) {
	root := t.TempDir()
	id := strings.Repeat("0123456789abcdef", 4)
	begin := func(dirs ...string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		for _, d := range dirs {
			dir := filepath.Join(root, d)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return cmd
	}
	// One process, in two hierarchies; another below a slice of systemd.
	one := begin("a/k8s.io/"+id, "b/k8s.io/"+id)
	two := begin("a/pods.slice/cri-containerd-" + id + ".scope")
	other := begin("a/k8s.io/" + strings.Repeat("f", 64))
	roots := []string{filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "none")}
	if n, err := reap(roots, "0123456789ab"); n != 0 || err != nil {
		t.Errorf("a short name: %d, %v; want none", n, err)
	}
	if n, err := reap(roots, id); n != 2 || err != nil {
		t.Errorf("%d, %v; want 2", n, err)
	}
	for _, cmd := range []*exec.Cmd{one, two} {
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("ended with %v", err)
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another container's process: %v", err)
	}
}
