//go:build kubelet

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apartAddress is the machine's address in a network namespace of its own.
const apartAddress = "10.91.0.1"

// inApart tells a child of this program that it is apart from the machine.
const inApart = "NODEWRIGHT_E2E_APART"

// apart runs a test once more in a process of its own that has mounts and a network of
// its own: kubeadm knows no other places than /etc/kubernetes, /var/lib/kubelet and
// the kubelet's ports. It returns false in the parent, when that has ended. In the child
// dir has what is below /var/lib and /var/log, as lib and log, and what was changed
// below /etc, as etc.
func apart(t *testing.T) (dir string, child bool) {
	t.Helper()
	if dir = os.Getenv(inApart); dir != "" {
		if err := separate(dir); err != nil {
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
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=15m", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inApart+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if t.Logf("apart from the machine:\n%s", out); err != nil {
		t.Fatal(err)
	}
	return "", false
}

// separate gives this process /etc, /var/lib and /var/log of its own, and a network
// with one address.
func separate(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, name := range []string{"etc", "work", "lib", "log"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	etc := fmt.Sprintf("lowerdir=/etc,upperdir=%s/etc,workdir=%[1]s/work", dir)
	errs := []error{
		unix.Mount("overlay", "/etc", "overlay", 0, etc),
		unix.Mount(filepath.Join(dir, "lib"), "/var/lib", "", unix.MS_BIND, ""),
		unix.Mount(filepath.Join(dir, "log"), "/var/log", "", unix.MS_BIND, ""),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), // as systemd has it
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600),
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "uplink", "type", "bridge"},
		{"address", "add", apartAddress + "/24", "dev", "uplink"},
		{"link", "set", "uplink", "up"},
		{"route", "add", "default", "dev", "uplink"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip %v: %w: %s", args, err, out))
		}
	}
	return errors.Join(errs...)
}
