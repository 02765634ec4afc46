//go:build linux

package localcri

import (
	"context"
	"io"
	"os"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
	"github.com/nodewright/nodewright/localcri/internal/usage"
)

// parts are the components of the runtime. Tests replace them.
type parts struct {
	monitors  monitorSource
	executors map[string]ociRuntime // by handler
	spaces    namespacer
	facts     hostFacts
	usage     usageReader
	forwarder portForwarder
	mounts    mounter
	processes processes
}

// monitorSource starts monitors and finds running ones.
type monitorSource interface {
	Launch(ctx context.Context, sandbox string) (monitorConn, error)
	// Connect connects to the monitor of a sandbox. It returns a monitor.ErrGone if none is
	// running.
	Connect(ctx context.Context, sandbox string) (monitorConn, monitor.State, error)
}

// monitorConn is a connection to one monitor; a monitor.Client implements it.
type monitorConn interface {
	Start(ctx context.Context, c monitor.Container) (monitor.Started, error)
	Adopt(ctx context.Context, k monitor.Kept, files monitor.Files) error
	Files(id string) monitor.Files
	Exec(ctx context.Context, e monitor.Exec) (execProcess, error)
	Attach(ctx context.Context, id string, stdin, stdout, stderr *os.File) error
	Resize(ctx context.Context, id string, width, height uint16) error
	ReopenLog(ctx context.Context, id, path string) error
	Keep(ctx context.Context, id string, record []byte) error
	Forget(ctx context.Context, id string) error
	Quit(ctx context.Context) error
	Close()
	Events() <-chan monitor.Event
	Done() <-chan struct{}
	PID() int
}

// execProcess is a process that a monitor runs in a container; a monitor.Process implements it.
type execProcess interface {
	Wait(ctx context.Context) (code int32, err error)
	Resize(width, height uint16) error
	Kill() error
	PID() int
	Master() *os.File
}

// ociRuntime runs an OCI runtime program, such as runc.
type ociRuntime interface {
	// Create, Start and Exec return the commands that a monitor executes.
	Create(c executor.Creation) []string
	Start(id, log string) []string
	Exec(x executor.Execution) []string

	Features(ctx context.Context) (executor.Features, error)
	State(ctx context.Context, id string) (executor.State, error)
	Update(ctx context.Context, id string, r *specs.LinuxResources) error
	Delete(ctx context.Context, id string, force bool) error
}

// namespacer creates and pins namespaces, and mounts files for them.
type namespacer interface {
	Make(ctx context.Context, q spaces.Request) (spaces.Paths, error)
	// Look returns the paths of the sandbox's namespaces that exist.
	Look(id string) (spaces.Paths, error)
	OpenUser(id string) (*os.File, error)
	// SetSysctls sets the sysctls of the sandbox, and the default ones.
	SetSysctls(ctx context.Context, id, netns string, sysctls map[string]string) error
	// HoldSys mounts a writable sysfs, so that privileged containers can write to /sys.
	HoldSys(ctx context.Context, id, netns string) error
	Remove(ctx context.Context, id string) error
	List() ([]string, error)
}

// hostFacts finds the facts about the machine that a container needs.
type hostFacts interface {
	Machine(ctx context.Context) (ocispec.Machine, error)
	// Sources returns the host's side of each mount, by index. It creates missing
	// directories.
	Sources(ctx context.Context, mounts []*runtimeapi.Mount) ([]ocispec.Source, error)
	// Devices finds the devices, by index.
	Devices(ctx context.Context, devices []*runtimeapi.Device) ([][]ocispec.Device, error)
	// HostDevices returns all device nodes of the host.
	HostDevices(ctx context.Context) ([]ocispec.Device, error)
	// Users returns the content of /etc/passwd and /etc/group below a root.
	Users(ctx context.Context, rootfs string) (passwd, group []byte, err error)
}

// usageReader reads usage from cgroups, and kills the processes of a cgroup.
type usageReader interface {
	Container(ctx context.Context, cgroup string, layer usage.Layer) (*runtimeapi.ContainerStats, error)
	Pod(ctx context.Context, cgroup, netns string) (*runtimeapi.LinuxPodSandboxStats, error)
	ContainerMetrics(ctx context.Context, cgroup string, layer usage.Layer, started time.Time, l usage.Labels) ([]*runtimeapi.Metric, error)
	PodMetrics(ctx context.Context, cgroup, netns string, started time.Time, l usage.Labels) ([]*runtimeapi.Metric, error)
	// KillCgroup kills every process of a cgroup. A missing cgroup is not an error.
	KillCgroup(ctx context.Context, cgroup string) error
	// OOMFile returns the path of the file that a monitor watches for OOM kills.
	OOMFile(cgroup string) string
}

// portForwarder connects rw to a port of localhost in the network namespace at the path netns. If
// netns is "", it uses the host's network namespace.
type portForwarder interface {
	Forward(ctx context.Context, netns string, port int32, rw io.ReadWriteCloser) error
}

// realMonitors implements monitorSource with package monitor.
type realMonitors struct{ r *Runtime }

func (m realMonitors) config() monitor.Config {
	c := &m.r.cfg
	return monitor.Config{Program: c.Monitor, StateDir: c.StateDir, Place: c.PlaceMonitor, Log: c.Log}
}

func (m realMonitors) Launch(ctx context.Context, sandbox string) (monitorConn, error) {
	c, err := monitor.Launch(ctx, m.config(), sandbox)
	if err != nil {
		return nil, err
	}
	return realMonitor{c}, nil
}

func (m realMonitors) Connect(ctx context.Context, sandbox string) (monitorConn, monitor.State, error) {
	c, s, err := monitor.Connect(ctx, m.config(), sandbox)
	if err != nil {
		return nil, monitor.State{}, err
	}
	return realMonitor{c}, s, nil
}

type realMonitor struct{ *monitor.Client }

func (m realMonitor) Exec(ctx context.Context, e monitor.Exec) (execProcess, error) {
	p, err := m.Client.Exec(ctx, e)
	if err != nil {
		return nil, err
	}
	return p, nil
}
