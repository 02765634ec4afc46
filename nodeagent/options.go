package nodeagent

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/server"
)

// Options configures a [Node]. Config is required. Every other field has a default for its zero
// value.
type Options struct {
	// Config is the node's configuration, as kubeletconfig.Load returns it. Do not change it
	// after New.
	Config *kubeletconfig.Config
	// Parts are the makers of the node's parts. The agent calls the parts in the order of this
	// list. A node without parts only runs pods. [Standard] returns all makers of this package.
	Parts []Maker
	// Services are functions that run beside the agent. [StandardServices] returns all services
	// of this package.
	Services []Service
	// Join connects the node to the cluster of Config.Kubeconfig; use the function of package
	// nodeagent/cluster. It is required if Config.Kubeconfig is set, and otherwise not called.
	Join func(*Builder) (*Cluster, error)

	// Runtime and Images are the services of the container runtime. Set both or neither. If they
	// are nil, New creates a client of Config.ContainerRuntimeEndpoint or, if that is empty, of
	// the first of the usual sockets that exists. Run closes only a client that New created.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// LocalRuntime makes a runtime in this process. Nil means that there is none. If
	// Runtime is nil, LocalRuntime is used in two cases:
	// Config.ContainerRuntimeEndpoint is [InProcess]; or it is empty, none of the usual
	// sockets exists, and the node has not used another runtime before. The node's
	// runtime is recorded in its root directory, so that a later start uses the same
	// one.
	LocalRuntime LocalMaker
	// Sources are sources of pods in addition to the sources of Config.
	Sources []podmgr.Source
	// Hardware describes the node's machine. If it is nil, the node's machine is the one on which
	// the agent runs.
	Hardware *Hardware
	// Machine reports shutdowns of the machine. If it is nil, logind does.
	Machine shutdown.Machine
	// Agent may change the agent's configuration before the agent is made. It may be nil.
	Agent func(*agent.Config)

	Settings

	// KubernetesVersion is the Kubernetes version that the node reports to its
	// cluster and in metrics. The default is the result of the function
	// KubernetesVersion.
	KubernetesVersion string

	Log *zap.Logger // if nil, nothing is logged
	// LogLevel changes the verbosity of Log, for /debug/flags/v. If it is nil, the verbosity
	// cannot be changed.
	LogLevel server.LogLevel
	// Metrics is the registry of the node's metrics, which LocalSocket and NodeAPI serve. If it
	// is nil, there are no metrics.
	Metrics *prometheus.Registry
	// Flags returns the flags of the program, which /flagz shows. If it is nil, /flagz shows
	// none.
	Flags func() map[string]string
}

// Settings are settings for which a KubeletConfiguration has no field. Every field has a default
// for its zero value.
type Settings struct {
	// SecretKeyFile is the path of a file with the key that encrypts stored Secrets and tokens,
	// which are used at starts without a network. The key has 32 bytes: raw, in hex or in base64.
	// The file must be readable only by root. The default is secret.key in the root directory,
	// which is created at the first start. If the key cannot be used, Secrets and tokens are not
	// stored.
	SecretKeyFile string
	// SecretsInClear stores Secrets and tokens unencrypted. It is for machines with an encrypted
	// disk.
	SecretsInClear bool
	// Socket is the path of the socket of LocalSocket. The default is agent.sock in the root
	// directory.
	Socket string
	// StartsInFlight limits the concurrent starts of pods. The default is the number of CPUs, but
	// at least 4.
	StartsInFlight int
	// PullsPerRegistry limits the concurrent pulls from one registry. If it is 0, there is no
	// limit.
	PullsPerRegistry int
	// ExecProbes limits the concurrent exec probes. The default is 32.
	ExecProbes int
	// FastProbes checks containers that are not ready yet more often than once a
	// period.
	FastProbes bool
	// PodLogBudget limits the bytes of all logs of a pod. If it is 0, there is no limit.
	PodLogBudget int64
	// LeaveHost means that the agent changes no kernel parameters, no firewall rules,
	// and not its own OOM score, even if the configuration asks for it. It is for
	// agents on a shared or personal machine.
	LeaveHost bool
	// ClaimsDir is the directory in which the agents of the machine record the
	// resources that they use outside of their root directories: the directory of pod
	// logs, the cgroup of pods, the container runtime, ports, the node's name in a
	// cluster. If another agent has recorded one of them, Run returns an error (see
	// node.TakeClaims). The default is node.ClaimsDir. [NoClaims] disables the records,
	// for a program that writes them itself. Nodes with Options.Hardware write no
	// records.
	ClaimsDir string
	// ContainerLogs is the directory of links to container logs, for log collectors: they look in
	// /var/log/containers. Agents may share the directory, since each creates and removes only
	// the links to its own logs. The default is the directory "containers" next to podLogsDir. If
	// ContainerLogs is "-", there are no links.
	ContainerLogs string
	// PollFiles polls manifests and logs (fileCheckFrequency,
	// containerLogMonitorInterval) instead of watching them: for file systems
	// without events, and for many nodes on a machine, whose watches are limited.
	PollFiles bool
	// NoPluginSockets disables the sockets below the root directory: the agent searches
	// no sockets of plugins, and does not serve device plugin registration and the
	// podresources API. The only device plugins and DRA drivers are those that the
	// program adds with Facts.OfferDevices and Facts.OfferDriver.
	NoPluginSockets bool
	// PinnedImages are names of images that are never removed; see pressure.CollectionConfig.
	PinnedImages []string
}

// validate returns all invalid fields. It reads only the cgroup version of the machine.
func (o *Options) validate() error {
	if o.Config == nil {
		return errors.New("field Options.Config is required")
	}
	var errs []error
	if (o.Runtime == nil) != (o.Images == nil) {
		errs = append(errs, errors.New("one of Options.Runtime and Options.Images is nil; both or neither are required"))
	}
	if o.Config.Kubeconfig != "" && o.Join == nil {
		errs = append(errs, fmt.Errorf("Options.Join is nil beside a kubeconfig, %s; cluster.Join is required", o.Config.Kubeconfig))
	}
	if o.Hardware != nil {
		errs = append(errs, o.Hardware.validate())
	}
	if _, err := VersionInfo(cmp.Or(o.KubernetesVersion, KubernetesVersion())); err != nil {
		errs = append(errs, fmt.Errorf("Options.KubernetesVersion: %w", err))
	}
	return errors.Join(append(errs, o.Settings.validate(), Supported(o.Config))...)
}

// validate returns an error if more than one source of the key is set, since it would not be
// clear which key is used.
func (s *Settings) validate() error {
	if s.SecretKeyFile != "" && s.SecretsInClear {
		return fmt.Errorf("Settings: SecretKeyFile is %q, and SecretsInClear is true; want at most one of them", s.SecretKeyFile)
	}
	return nil
}

// Supported returns an error if a valid configuration cannot be used on this machine: cgroup v1
// is accepted only if failCgroupV1 (KEP-4569) is false or not set.
func Supported(c *kubeletconfig.Config) error {
	if c.FailCgroupV1 != nil && *c.FailCgroupV1 && !node.CgroupV2() {
		return errors.New("invalid configuration: failCgroupV1: true: this machine has cgroup v1; want false here")
	}
	return nil
}

// socket returns the path of LocalSocket.
func (o *Options) socket() string {
	if o.Socket != "" {
		return o.Socket
	}
	return filepath.Join(o.Config.RootDir, "agent.sock")
}
