package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/bootid"
)

// Config configures a Network. Plugins and StateDir are required; the zero value of
// every other field means the default named beside it.
type Config struct {
	// Plugins implement networks. New attachments use the first one. The others only
	// tear down attachments that an earlier process made with them; they are found by
	// Name.
	Plugins []Plugin
	// StateDir is the directory of the records, an absolute path. It is created
	// with mode 0700, must not be shared with other programs, and must survive a
	// reboot.
	StateDir string
	// NetnsDir is the absolute path of the directory in which namespaces are bound. The default
	// is /run/netns, where ip-netns(8) lists them.
	NetnsDir string
	// Prefix begins the names of namespaces, followed by a dash and 32 hexadecimal digits. Run
	// removes namespaces in NetnsDir that have such a name and no record. Prefix has the form
	// [a-z0-9][a-z0-9-]* and at most 32 bytes. The default is "nodewright".
	Prefix string
	// Exclusive means that no other runtime uses the plugins' networks, so that resources without
	// a record may be freed. See [Collector].
	Exclusive bool
	// CheckAfterRestart checks the existing attachments once when Run starts, and
	// logs the results. See [Checker].
	CheckAfterRestart bool

	// SetUpTimeout and the next three fields limit the plugin's calls. A call that does not
	// return within 5 s after its timeout is abandoned: no other call is made for its ID until it
	// returns.
	SetUpTimeout    time.Duration // the default is 2 min
	TearDownTimeout time.Duration // the default is 1 min
	CheckTimeout    time.Duration // the default is 30 s
	CollectTimeout  time.Duration // also of Recovered; the default is 2 min
	// DiskTimeout limits each use of StateDir and NetnsDir. The default is 30 s.
	DiskTimeout time.Duration

	// BootID identifies the boot of the machine. The default is the kernel's boot ID.
	BootID string
	// Namespaces creates the namespaces. The default creates them in the kernel.
	Namespaces Namespaces
	Log        *zap.Logger // if nil, nothing is logged
}

const (
	defaultNetnsDir = "/run/netns"
	defaultPrefix   = "nodewright"
	// parallelCalls limits the concurrent plugin calls. Abandoned calls do not count.
	parallelCalls = 8
	// parallelChecks limits the concurrent checks after a restart.
	parallelChecks = 4
	// grace is the time that a plugin has to return after its deadline.
	grace = 5 * time.Second
	// afterKill is the time that killed processes have to end.
	afterKill = 5 * time.Second
	// maxAttachments limits the attachments, far above the pods of a node.
	maxAttachments = 16384
	// maxHung limits the abandoned calls, since each has a goroutine, and may have a process.
	// When it is reached, new attachments are refused.
	maxHung = 64
	// firstRetry and lastRetry are the first and the longest pause before TearDown is tried again.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

var prefixForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func (c Config) withDefaults() (Config, error) {
	if c.NetnsDir == "" {
		c.NetnsDir = defaultNetnsDir
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.Namespaces == nil {
		c.Namespaces = kernelSpaces{}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	var errs []error
	for _, d := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{
		{"SetUpTimeout", &c.SetUpTimeout, 2 * time.Minute},
		{"TearDownTimeout", &c.TearDownTimeout, time.Minute},
		{"CheckTimeout", &c.CheckTimeout, 30 * time.Second},
		{"CollectTimeout", &c.CollectTimeout, 2 * time.Minute},
		{"DiskTimeout", &c.DiskTimeout, 30 * time.Second},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("field Config.%s is %v; want a positive duration, or 0 for %v", d.name, *d.value, d.other))
		}
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	if !prefixForm.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("Config.Prefix is %q; want %s", c.Prefix, prefixForm))
	}
	for _, d := range []struct{ name, value string }{{"StateDir", c.StateDir}, {"NetnsDir", c.NetnsDir}} {
		if !filepath.IsAbs(d.value) {
			errs = append(errs, fmt.Errorf("field Config.%s is %q; want an absolute path", d.name, d.value))
		}
	}
	c.StateDir, c.NetnsDir = filepath.Clean(c.StateDir), filepath.Clean(c.NetnsDir)
	errs = append(errs, checkPlugins(c.Plugins))
	if c.BootID == "" {
		var err error
		c.BootID, err = bootid.Read(os.DirFS("/"))
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func checkPlugins(plugins []Plugin) error {
	if len(plugins) == 0 {
		return errors.New("Config.Plugins is empty; want at least one")
	}
	var errs []error
	names := map[string]bool{}
	for i, p := range plugins {
		switch {
		case p == nil:
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is nil", i))
		case p.Name() == "" || len(p.Name()) > 64:
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is named %.80q; want 1 to 64 bytes", i, p.Name()))
		case names[p.Name()]:
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] has the name %q of another plugin; want different names", i, p.Name()))
		default:
			names[p.Name()] = true
		}
	}
	return errors.Join(errs...)
}
