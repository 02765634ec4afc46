package facts

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// Config holds what Facts need. Its zero value is that of this machine with
// cgroups that are made directly.
type Config struct {
	// Systemd says that systemd makes the cgroups.
	Systemd bool
	// Seccomp makes the profile that stands for RuntimeDefault; moby's by default.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// AppArmorDefault is the name of the AppArmor profile that stands for
	// RuntimeDefault. It counts while it is loaded; "" is none.
	AppArmorDefault string
	// Proc, Sys and Dev are where proc, sysfs and the device nodes are; /proc,
	// /sys and /dev.
	Proc, Sys, Dev string
}

// Facts of a machine. Its methods may be called from any goroutine.
type Facts struct {
	cfg     Config
	hostile detached.Group[found] // by path

	once    sync.Once
	machine ocispec.Machine // what does not change while the machine runs
}

// New checks cfg and reads nothing.
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
	return &Facts{cfg: cfg}, nil
}
