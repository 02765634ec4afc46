package facts

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// Config configures Facts. The zero value is for this machine, with cgroups not created by
// systemd.
type Config struct {
	// Systemd reports whether systemd creates the cgroups.
	Systemd bool
	// Seccomp returns the profile for RuntimeDefault. If it is nil, moby's default profile is
	// used.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// AppArmorDefault is the name of the AppArmor profile for RuntimeDefault. It is used only
	// while the kernel has loaded it. If it is "", RuntimeDefault means no profile.
	AppArmorDefault string
	// Proc, Sys and Dev are the paths of proc, sysfs and the device nodes. The defaults are
	// /proc, /sys and /dev.
	Proc, Sys, Dev string
}

// Facts reads facts about a machine. Its methods may be called from any goroutine.
type Facts struct {
	cfg     Config
	kernel  *kernel.Reader
	hostile detached.Group[found] // by path

	once    sync.Once
	machine ocispec.Machine // the part that does not change while the machine runs
}

// New checks cfg. It reads no files.
func New(cfg Config) (*Facts, error) {
	var errs []error
	for _, d := range []struct {
		field, usual string
		path         *string
	}{{"Proc", "/proc", &cfg.Proc}, {"Sys", "/sys", &cfg.Sys}, {"Dev", "/dev", &cfg.Dev}} {
		if *d.path == "" {
			*d.path = d.usual
		}
		if !filepath.IsAbs(*d.path) {
			errs = append(errs, fmt.Errorf("facts: Config.%s is %q; want an absolute path", d.field, *d.path))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Seccomp == nil {
		cfg.Seccomp = seccomp.GetDefaultProfile
	}
	reader := kernel.New(kernel.Options{
		Proc: kernel.Dir(cfg.Proc), Sys: kernel.Dir(cfg.Sys), Cgroups: kernel.Dir(filepath.Join(cfg.Sys, "fs/cgroup")),
	})
	return &Facts{cfg: cfg, kernel: reader}, nil
}
