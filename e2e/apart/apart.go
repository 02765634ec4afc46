// Package apart gives a process its own directories and network: the directories below /var/lib
// and /var/log that programs of Kubernetes expect, and a network in which their ports are free.
// So a node can run beside anything else on the machine.
package apart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Address is the address of the machine in the network of Places.
const Address = "10.91.0.1"

// Flags are the flags of clone(2) for a process that calls Places.
const Flags = unix.CLONE_NEWNS | unix.CLONE_NEWNET

// Places changes the mount and network namespaces of this process. /var/lib and /var/log become
// the directories lib and log below dir, and writes below /etc and /opt go to etc and opt there.
// The network has Address, a default route that leads nowhere, and forwarding. dir must be empty.
func Places(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, name := range []string{"etc", "etc.work", "opt", "opt.work", "lib", "log"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	over := func(name string) error {
		return unix.Mount("overlay", "/"+name, "overlay", 0, fmt.Sprintf("lowerdir=/%s,upperdir=%s/%[1]s,workdir=%[2]s/%[1]s.work", name, dir))
	}
	errs := []error{
		over("etc"),
		over("opt"),
		unix.Mount(filepath.Join(dir, "lib"), "/var/lib", "", unix.MS_BIND, ""),
		unix.Mount(filepath.Join(dir, "log"), "/var/log", "", unix.MS_BIND, ""),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), // as systemd has it
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600),
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "uplink", "type", "bridge"},
		{"address", "add", Address + "/24", "dev", "uplink"},
		{"link", "set", "uplink", "up"},
		{"route", "add", "default", "dev", "uplink"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip %v: %w: %s", args, err, out))
		}
	}
	return errors.Join(errs...)
}
