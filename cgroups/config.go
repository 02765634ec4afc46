package cgroups

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// Config holds what a Manager needs. Nothing is required; the zero value of
// every field means the default named beside it.
type Config struct {
	// Root is the cgroup that kubepods is made in, as cgroupfs has it. It has
	// to be there, unless it is the root of all. Pods of several nodes on one
	// machine need different roots: Sweep removes all pods' cgroups below its own.
	Root   string // /
	Driver Driver // Cgroupfs
	// Units is systemd, for Driver Systemd, such as [SystemdUnits].
	Units Units
	// Version is what the machine must have; 0 takes either.
	Version Version
	// FailOnV1 makes cgroup v1 an error instead of a warning.
	FailOnV1 bool
	// NoPodCgroups leaves all of it to the runtime: every call succeeds and
	// does nothing.
	NoPodCgroups bool

	// Node is the machine. Without capacity its cgroup gets no limits.
	Node Node
	// CPUs is the set of all CPUs, written to the cgroup of all pods. On v2
	// systemd takes the cpuset controller from slices that name no CPUs, so it
	// is to be set where nobody else hands out CPUs.
	CPUs string
	// Enforce says who is held to what is left for it, or reserved.
	Enforce []Enforcement // pods
	// SystemReservedCgroup and KubeReservedCgroup are cgroups that are there
	// already, as cgroupfs has them; they are never made.
	SystemReservedCgroup, KubeReservedCgroup string
	// QOSReserved is what percentage of requested memory is kept from pods of
	// lesser classes, such as memory: 50%. It is the kubelet's qosReserved; nil or
	// empty keeps nothing.
	QOSReserved map[v1.ResourceName]string

	// PodOptions are the same for all pods.
	PodOptions

	// Event is told what happens to the node: a type and a reason of v1.Event,
	// in the kubelet's words. It must not block. Nil informs nobody.
	Event func(eventType, reason, message string)

	// A call that is given up goes on in its goroutine: nothing can interrupt a
	// thread inside the kernel.
	CallTimeout time.Duration // of one call of the kernel or systemd; 10s
	TierDelay   time.Duration // between two updates of the QoS tiers; 100ms

	// The next three are for tests and for machines behind another interface; each
	// is called from many goroutines.
	FS       FS                  // the machine's
	Notifier Notifier            // the machine's kernel
	Kill     func(pid int) error // SIGKILL; a process that is gone is no error

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns c with every zero field set to the default that its
// comment names. validate and New rely on it having run.
func (c Config) withDefaults() Config {
	if c.Root == "" {
		c.Root = "/"
	}
	if c.Driver == "" {
		c.Driver = Cgroupfs
	}
	// Only nil takes the default: an empty list enforces nothing, and without
	// pods' cgroups there is nothing to enforce on.
	if c.Enforce == nil && !c.NoPodCgroups {
		c.Enforce = []Enforcement{EnforcePods}
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 10 * time.Second
	}
	if c.TierDelay == 0 {
		c.TierDelay = 100 * time.Millisecond
	}
	if c.FS == nil {
		c.FS = osFS{}
	}
	if c.Notifier == nil {
		c.Notifier = newNotifier()
	}
	if c.Kill == nil {
		c.Kill = kill
	}
	if c.Event == nil {
		c.Event = func(string, string, string) {}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns all faults of c joined, so that a configuration can be
// mended in one go. It looks at no file: what the machine lacks shows when the
// Manager starts.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// Paths are joined with those of the mount points; with .. in them they could
	// leave the hierarchy.
	for field, p := range map[string]string{
		"Root": c.Root, "SystemReservedCgroup": c.SystemReservedCgroup, "KubeReservedCgroup": c.KubeReservedCgroup,
	} {
		if p != "" && (!path.IsAbs(p) || path.Clean(p) != p) {
			bad("Config.%s is %q; want an absolute path without . or ..", field, p)
		}
	}
	switch {
	case c.Driver != Cgroupfs && c.Driver != Systemd:
		bad("Config.Driver is %q; want %q or %q", c.Driver, Cgroupfs, Systemd)
	case c.Driver == Systemd && c.Units == nil:
		bad("Config.Units is required with Config.Driver %q", Systemd)
	// An underscore in a slice's name stands for a dash, so that the name of such
	// a root could not be read back.
	case c.Driver == Systemd && strings.Contains(c.Root, "_"):
		bad("Config.Root is %q; want a name without _ for the driver %q", c.Root, Systemd)
	}
	if c.Version != 0 && c.Version != V1 && c.Version != V2 {
		bad("Config.Version is %d; want 0, 1 or 2", c.Version)
	}
	// The bounds are those of the kernel for the period of a CFS quota
	// (scheduler/sched-bwc): 1ms to 1s.
	if us := c.CPUPeriod.Microseconds(); c.CPUPeriod != 0 && (us < 1000 || us > 1000000) {
		bad("Config.CPUPeriod is %v; want 1ms to 1s", c.CPUPeriod)
	}
	for field, d := range map[string]time.Duration{"CallTimeout": c.CallTimeout, "TierDelay": c.TierDelay} {
		if d < 0 {
			bad("Config.%s is %v; want a positive duration", field, d)
		}
	}
	_, err := c.reservePercent()
	return errors.Join(append(errs, err, c.Node.validate(), c.validateEnforce())...)
}
