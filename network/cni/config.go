package cni

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Directories of the CNI conventions, and Kubernetes' name of a pod's interface.
const (
	DefaultConfDir  = "/etc/cni/net.d"
	DefaultBinDir   = "/opt/cni/bin"
	DefaultCacheDir = "/var/lib/nodewright/cni"

	ifName = "eth0"
)

// Preference says which of several addresses is the primary one.
type Preference int

// Preferences.
const (
	AsIs Preference = iota // the plugin's first address
	IPv4                   // the first IPv4 address, if there is one
	IPv6                   // the first IPv6 address, if there is one
)

// Config configures a Plugin. Its zero value is valid.
type Config struct {
	// ConfDir has the network configurations. The default is DefaultConfDir. It need not exist.
	ConfDir string
	// BinDirs are the directories of the plugins' executables; a plugin is taken from the first
	// directory that has it. The default is DefaultBinDir. They need not exist.
	BinDirs []string
	// CacheDir is a directory for libcni's cache of results, for this plugin alone, created with
	// mode 0700. The default is DefaultCacheDir.
	CacheDir string
	// Reserved are ports of TCP that no pod can have as host ports, such as those of the agent
	// itself.
	Reserved []uint16
	// Prefer selects the primary address.
	Prefer Preference

	// AddTimeout and the fields below are the timeouts of the verbs. If one is 0, it has its
	// default. The context of a call may end it earlier. The timeouts of ADD, DEL, CHECK and GC
	// limit the calls of all plugins of a list together.
	AddTimeout     time.Duration // the default is 2 min
	DelTimeout     time.Duration // the default is 60 s
	CheckTimeout   time.Duration // the default is 30 s
	VersionTimeout time.Duration // the default is 10 s
	GCTimeout      time.Duration // the default is 2 min

	Log *zap.Logger // if nil, nothing is logged
}

func (c Config) withDefaults() (Config, error) {
	c.ConfDir = cmp.Or(c.ConfDir, DefaultConfDir)
	c.CacheDir = cmp.Or(c.CacheDir, DefaultCacheDir)
	c.BinDirs = slices.Clone(c.BinDirs)
	if len(c.BinDirs) == 0 {
		c.BinDirs = []string{DefaultBinDir}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	errs := []error{absolute("ConfDir", &c.ConfDir), absolute("CacheDir", &c.CacheDir)}
	for i := range c.BinDirs {
		field := fmt.Sprintf("BinDirs[%d]", i)
		errs = append(errs, absolute(field, &c.BinDirs[i]))
		if strings.ContainsRune(c.BinDirs[i], filepath.ListSeparator) {
			errs = append(errs, fmt.Errorf("%s is %q; want a path without %q, which separates those of CNI_PATH", field, c.BinDirs[i], filepath.ListSeparator))
		}
	}
	if c.Prefer < AsIs || c.Prefer > IPv6 {
		errs = append(errs, fmt.Errorf("%s is %d; want AsIs, IPv4 or IPv6", "Prefer", c.Prefer))
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"AddTimeout", &c.AddTimeout, 2 * time.Minute},
		{"DelTimeout", &c.DelTimeout, time.Minute},
		{"CheckTimeout", &c.CheckTimeout, 30 * time.Second},
		{"VersionTimeout", &c.VersionTimeout, 10 * time.Second},
		{"GCTimeout", &c.GCTimeout, 2 * time.Minute},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v; want more than 0, or 0 for %v", d.name, *d.value, d.usual))
		}
		*d.value = cmp.Or(*d.value, d.usual)
	}
	return c, errors.Join(errs...)
}

// absolute checks that a path is absolute, and cleans it.
func absolute(field string, path *string) error {
	if !filepath.IsAbs(*path) || strings.ContainsRune(*path, 0) {
		return fmt.Errorf("%s is %q; want an absolute path", field, *path)
	}
	*path = filepath.Clean(*path)
	return nil
}
