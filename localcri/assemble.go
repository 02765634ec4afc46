//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/facts"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
)

// assemble creates the parts that tests have not replaced, and checks whether the machine
// supports them. The error has all reasons why it does not.
func (r *Runtime) assemble() error {
	if r.monitors != nil {
		return nil // set by a test
	}
	errs := []error{r.checkMachine()}
	r.monitors = realMonitors{r}
	r.executors = map[string]ociRuntime{}
	for name, h := range r.cfg.Handlers {
		args := h.Args
		if r.cfg.CgroupDriver == "systemd" {
			args = append([]string{"--systemd-cgroup"}, args...)
		}
		x, err := executor.New(executor.Config{Path: h.Path, Args: args, StateDir: r.statePath(executorsDir, name), Log: r.log})
		errs = append(errs, err)
		r.executors[name] = x
	}
	var err error
	r.spaces, err = newSpaces(r.cfg)
	errs = append(errs, err)
	f, err := facts.New(facts.Config{Systemd: r.cfg.CgroupDriver == "systemd", Seccomp: r.cfg.Seccomp, AppArmorDefault: r.cfg.AppArmorProfile})
	errs = append(errs, err)
	if err == nil {
		r.facts = realFacts{f}
		if f.SELinux() == "enforcing" {
			errs = append(errs, errors.New("SELinux is enforcing; this runtime does not set SELinux labels"))
		}
	}
	r.usage, r.forwarder, err = newUsage(r.cfg)
	errs = append(errs, err)
	r.mounts, r.processes = realMounts{}, realProcesses{}
	return errors.Join(errs...)
}

func newSpaces(cfg Config) (namespacer, error) {
	s, err := spaces.New(spaces.Config{StateDir: cfg.StateDir, ShmSize: shmSize})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// checkMachine returns an error if the machine lacks anything that every container needs.
func (r *Runtime) checkMachine() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, fmt.Errorf("process runs as user %d; want root", os.Geteuid()))
	} else if !hasSysAdmin() {
		errs = append(errs, errors.New("process does not have CAP_SYS_ADMIN"))
	}
	kernel, err := facts.ReadKernel()
	errs = append(errs, err)
	if err == nil && kernel.Before(facts.LeastKernel) {
		errs = append(errs, fmt.Errorf("kernel is Linux %s; want at least %s", kernel, facts.LeastKernel))
	}
	const most = 1 << 20
	if b, err := safefile.ReadFile("/proc/filesystems", most); err != nil || !strings.Contains(string(b), "overlay") {
		// The module may be loaded by the first mount.
		if _, err := os.Stat("/sys/module/overlay"); err != nil && !hasModule() {
			errs = append(errs, errors.New("kernel has no overlayfs"))
		}
	}
	if r.cfg.Monitor != "" {
		errs = append(errs, checkProgram("Config.Monitor", r.cfg.Monitor))
	} else if err := monitor.Carried(); err != nil {
		errs = append(errs, fmt.Errorf("Config.Monitor is empty: %w", err))
	}
	for _, name := range sortedKeys(r.cfg.Handlers) {
		errs = append(errs, checkProgram(fmt.Sprintf("Config.Handlers[%q].Path", name), r.cfg.Handlers[name].Path))
	}
	for _, dir := range []string{r.cfg.RootDir, r.cfg.StateDir} {
		errs = append(errs, lockedBy(dir))
	}
	return errors.Join(errs...)
}

func hasModule() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]), "kernel/fs/overlayfs")
	_, err := os.Stat(dir)
	return err == nil
}

func hasSysAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// checkProgram returns an error unless path is an executable program.
func checkProgram(field, path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is %s, which does not exist", field, path)
	case err != nil:
		return fmt.Errorf("%s is %s: %w", field, path, err)
	case !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0:
		return fmt.Errorf("%s is %s, with mode %v; want a program", field, path, fi.Mode())
	}
	return nil
}

// lockedBy returns an error if another process uses a directory. It does not lock the directory
// itself; Run does.
func lockedBy(dir string) error {
	f, err := safefile.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := ownerlock.Check(f); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// nameLacks logs once per start which features this kernel lacks.
func (r *Runtime) nameLacks(ctx context.Context) {
	kernel, err := facts.ReadKernel()
	if err != nil {
		return
	}
	machine, err := r.facts.Machine(ctx)
	if err != nil {
		return
	}
	for _, l := range kernel.Lacks(machine.CgroupV2) {
		r.log.Info("kernel lacks feature", zap.String("kernel", kernel.String()), zap.String("feature", l.What), zap.String("since", l.Since.String()), zap.String("lost", l.Lost))
	}
}

// realFacts implements hostFacts with package facts.
type realFacts struct{ *facts.Facts }

func (f realFacts) Machine(context.Context) (ocispec.Machine, error) { return f.Facts.Machine(), nil }

func (f realFacts) Users(_ context.Context, rootfs string) (passwd, group []byte, err error) {
	return facts.Users(rootfs)
}

var _ hostFacts = realFacts{}

// hostDevices adds the host's devices to m if the container is privileged and its handler allows
// that.
func (r *Runtime) hostDevices(ctx context.Context, m *ocispec.Machine, c *runtimeapi.ContainerConfig, h Handler) error {
	if !c.GetLinux().GetSecurityContext().GetPrivileged() || h.PrivilegedWithoutHostDevices {
		return nil
	}
	var err error
	m.Devices, err = r.facts.HostDevices(ctx)
	return err
}
