//go:build kubelet || ecosystem

package e2e_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/e2e/apart"
)

// inApart says to a child of this program that it is apart from the machine.
const inApart = "NODEWRIGHT_E2E_APART"

// runApart runs a test once more in a process of its own that has mounts and a network of
// its own: kubeadm knows no other places than /etc/kubernetes, /var/lib/kubelet and
// the kubelet's ports. It returns false in the parent, when that has ended. In the child
// dir has what is below /var/lib and /var/log, as lib and log, and what was changed
// below /etc, as etc.
func runApart(t *testing.T) (dir string, child bool) {
	t.Helper()
	if dir = os.Getenv(inApart); dir != "" {
		if err := apart.Places(dir); err != nil {
			t.Fatal(err)
		}
		return dir, true
	}
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("namespaces of mounts and network need root")
		}
		t.Skip("namespaces of mounts and network need root")
	}
	dir, err := os.MkdirTemp("", "nwe2e-apart")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil { // what a failed run left may still be in use
			t.Logf("remove the directory of the run: %v", err)
		}
	})
	args := []string{"-test.v", "-test.run=^" + t.Name() + "$"}
	if end, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+(time.Until(end)-time.Minute).String()) // this process has to report and clean up
	}
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.") {
			args = append(args, a)
		}
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), inApart+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: apart.Flags}
	out, err := cmd.CombinedOutput()
	if t.Logf("apart from the machine:\n%s", out); err != nil {
		t.Fatal(err)
	}
	return dir, false // its removal reads dir
}
