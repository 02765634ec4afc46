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
	// Root is the cgroup, as a path of cgroupfs, in which kubepods is created. It must exist, unless
	// it is "/". Several nodes on one machine need different roots, since Sweep removes the cgroups
	// of all unknown pods below Root.
	Root   string // /
	Driver Driver // Cgroupfs
	// Units creates slices of systemd, for Driver Systemd: see [SystemdUnits].
	Units Units
	// Version is the version that the machine must have; 0 accepts either.
	Version Version
	// FailOnV1 makes cgroup v1 an error instead of a warning.
	FailOnV1 bool
	// NoPodCgroups leaves pod cgroups to the runtime: Ensure, Update, Raise, Lower
	// and Destroy succeed and do nothing.
	NoPodCgroups bool

	// Node describes the machine. If it has no capacity, the cgroup of all pods gets no limits.
	Node Node
	// CPUs lists all CPUs, such as 0-7; the list is written to the cgroup of all
	// pods. On v2 systemd removes the cpuset controller from slices that name no
	// CPUs: set CPUs unless a CPU manager writes cpusets.
	CPUs string
	// Enforce names the cgroups that are limited to their part of the node.
	Enforce []Enforcement // pods
	// SystemReservedCgroup and KubeReservedCgroup are existing cgroups, as paths of
	// cgroupfs; they are never created.
	SystemReservedCgroup, KubeReservedCgroup string
	// QOSReserved is the percentage of requested memory that pods of lower QoS classes cannot
	// use, such as memory: 50%. It is the kubelet's qosReserved. If it is nil or empty, nothing
	// is reserved.
	QOSReserved map[v1.ResourceName]string

	// PodOptions apply to all pods.
	PodOptions

	// Event is called with events of the node: a type and a reason of v1.Event, in the kubelet's
	// words. It must not block. If Event is nil, events are dropped.
	Event func(eventType, reason, message string)

	TierDelay time.Duration // time between two updates of the QoS tiers; the default is 100 ms

	// FS, Notifier and Kill are for tests and for machines behind another interface. Each is
	// called from many goroutines.
	FS       FS                  // the default is the machine's file system
	Notifier Notifier            // the default is the machine's kernel
	Kill     func(pid int) error // the default sends SIGKILL; a process that has ended must not be an error

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// callTimeout limits one call of the kernel or systemd. An abandoned call continues in its
// goroutine: nothing can interrupt a thread inside the kernel.
const callTimeout = 10 * time.Second

// withDefaults returns c with every zero field set to the default that its comment names. New calls
// it before validate.
func (c Config) withDefaults() Config {
	if c.Root == "" {
		c.Root = "/"
	}
	if c.Driver == "" {
		c.Driver = Cgroupfs
	}
	// Only nil takes the default: an empty list enforces nothing. Without pod
	// cgroups there is nothing to limit.
	if c.Enforce == nil && !c.NoPodCgroups {
		c.Enforce = []Enforcement{EnforcePods}
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

// validate returns all faults of c joined. It reads no file: a controller that the
// machine lacks is an error of the first call that needs cgroups.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// Paths are joined with the mount points: with .. in them they could leave the
	// hierarchy.
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
	// In a slice's name an underscore stands for a dash, so that the name of such a
	// root could not be read back.
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
	if c.TierDelay < 0 {
		bad("Config.TierDelay is %v; want a positive duration", c.TierDelay)
	}
	_, err := c.reservePercent()
	return errors.Join(append(errs, err, c.Node.validate(), c.validateEnforce())...)
}
