package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// InProcess is the endpoint that selects the runtime of Options.LocalRuntime.
const InProcess = kubeletconfig.InProcess

// LocalRuntime is a container runtime in the agent's own process.
type LocalRuntime struct {
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// Run recovers the runtime's state and serves calls until its context ends. It starts before
	// the agent and ends after it. It is required.
	Run func(context.Context) error
	// Import installs the images of an archive, and returns their IDs. An image without
	// a name in the archive gets name. If Import is nil, the node accepts no archives.
	Import func(ctx context.Context, archive io.Reader, name string) ([]string, error)
	// Offered asks the registry of an image whether it has the image. If Offered is nil,
	// registries are not asked.
	Offered func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error
	// Network describes in a line the network of pods, and why it was chosen.
	Network string
	// Advice returns sentences about settings of the machine that disturb pods, and how to change
	// them. It reads only memory. It may be nil.
	Advice func() []string
}

// A LocalMaker makes the runtime of a node whose configuration names none. That of
// package nodeagent/localcri needs only runc or crun on the machine.
type LocalMaker func(context.Context, *Builder) (*LocalRuntime, error)

// RuntimeRecords returns the directory below a node's root directory with the
// record of its runtime, and the choices of the runtime in the process.
func RuntimeRecords(rootDir string) string { return filepath.Join(rootDir, "runtime") }

// endpointKey is the key of the record of the endpoint of the runtime that has the node's pods.
const endpointKey = "endpoint"

// wellKnownSockets returns the sockets that are tried in order if no runtime is
// configured: of containerd, CRI-O, cri-dockerd and k3s. The first that answers is
// used. On a machine with several runtimes the endpoint should be configured.
func wellKnownSockets() []string {
	return []string{
		"/run/containerd/containerd.sock",
		"/run/crio/crio.sock",
		"/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock",
	}
}

// choice is the runtime of a node, and the reason for the choice, which is logged.
type choice struct{ endpoint, why string }

// choose decides the runtime of a node. configured is the endpoint in the configuration, and
// recorded the endpoint of the last start; each is "" if there is none. hasLocal means that a
// runtime in this process is available. find returns the first of the usual sockets that answers.
// existing returns the first of the usual sockets that exists, or "": if such a runtime has only
// not started yet, another runtime must not replace it, since the node's pods would then run
// twice.
func choose(configured, recorded string, hasLocal bool, find func() (string, error), existing func() string) (choice, error) {
	switch {
	case configured == InProcess && !hasLocal:
		return choice{}, fmt.Errorf("containerRuntimeEndpoint=%q: this agent has no container runtime of its own; want the endpoint of one", configured)
	case configured != "":
		return choice{configured, "it is configured"}, nil
	case recorded == InProcess && hasLocal:
		return choice{InProcess, "the node's pods run on it already"}, nil
	}
	// Without a configured or recorded one, the sockets of the machine decide.
	endpoint, err := find()
	switch {
	case err == nil:
		return choice{endpoint, "its socket answers"}, nil
	case !hasLocal:
		return choice{}, err
	// The runtime in this process would run the pods a second time as soon as the recorded runtime
	// is back.
	case recorded != "":
		return choice{}, fmt.Errorf("%w\n  the agent was started with %s before, so that pods may run there; set containerRuntimeEndpoint to it or to %s", err, recorded, InProcess)
	}
	if path := existing(); path != "" {
		return choice{}, fmt.Errorf("%w\n  %s exists but does not answer; set containerRuntimeEndpoint to a runtime or to %s", err, path, InProcess)
	}
	return choice{InProcess, "no other one is on this machine"}, nil
}

// runtime sets the runtime and the image service of the Builder. endpoint is "" if the runtime is
// in this process. If the record of the last runtime cannot be read, that is logged, and the
// record counts as missing.
func (n *Node) runtime(ctx context.Context) (endpoint string, err error) {
	b, maker := n.builder, n.options.LocalRuntime
	store := part.OpenStore(RuntimeRecords(b.Config.RootDir), b.Log)
	last, err := store.Read(endpointKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Log.Warn("failed to read record of the node's runtime", zap.Error(err))
	}
	c, err := choose(b.Config.ContainerRuntimeEndpoint, string(last), maker != nil,
		func() (string, error) { return cri.Find(ctx, wellKnownSockets()) }, usualSocket)
	if err != nil {
		return "", err
	}
	// The reason is logged at each start, since the choice may be automatic.
	b.Log.Info("chose container runtime", zap.String("endpoint", c.endpoint), zap.String("why", c.why))
	if c.endpoint != InProcess {
		if n.client, err = connect(b.Config, c.endpoint, b.Log, b.Metrics); err != nil {
			return "", err
		}
		b.Runtime, b.Images = guardedPorts{n.client, OwnPorts(b.Config)}, n.client
		endpoint = c.endpoint
	} else {
		if n.local, err = maker(ctx, b); err != nil {
			return "", fmt.Errorf("container runtime of this agent: %w", err)
		}
		b.Log.Info("chose pod network", zap.String("network", n.local.Network))
		b.Runtime, b.Images = n.local.Runtime, n.local.Images
		n.services = append(n.services, service{
			name: "container runtime",
			run:  func(ctx context.Context) error { return Vital(n.local.Run(ctx)) }, // without the runtime no pod can start or end
		})
	}
	n.endpoint = c.endpoint
	// Written by Run: a node that was only created and closed has run no pod on the runtime.
	if c.endpoint != string(last) {
		n.remember = func(ctx context.Context) error {
			if err := part.Write(context.WithoutCancel(ctx), store, endpointKey, []byte(c.endpoint)); err != nil {
				return fmt.Errorf("record the node's container runtime: %w", err)
			}
			return nil
		}
	}
	return endpoint, nil
}

// usualSocket returns the first of the usual sockets that exists, or "". No process need listen
// on it: the file shows that a runtime was installed.
func usualSocket() string {
	for _, s := range wellKnownSockets() {
		if _, err := os.Lstat(s); err == nil {
			return s
		}
	}
	return ""
}

// connect makes a client of a runtime. It does not wait for the runtime to answer.
func connect(c *kubeletconfig.Config, endpoint string, log *zap.Logger, reg prometheus.Registerer) (*cri.Client, error) {
	return cri.New(cri.Config{
		Endpoint: endpoint, ImageEndpoint: c.ImageServiceEndpoint,
		Timeout: c.RuntimeRequestTimeout.Duration, Log: log.Named("cri"), Metrics: reg,
	})
}
