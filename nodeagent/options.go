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

// Options configures a [Node]. Config is required; the zero value of every other
// field means the default named beside it.
type Options struct {
	// Config is the node's configuration, as kubeletconfig.Load returns it. It must
	// not be changed any more.
	Config *kubeletconfig.Config
	// Parts are made, and called, in this order; none. [Standard] returns all.
	Parts []Maker
	// Services run beside the agent; none. [StandardServices] returns all.
	Services []Service
	// Join connects the node to the cluster of Config.Kubeconfig, and is required with
	// one: use that of package nodeagent/cluster. Join is not called if
	// Config.Kubeconfig is empty.
	Join func(*Builder) (*Cluster, error)

	// Runtime and Images are both set, or neither. Nil: a client of
	// Config.ContainerRuntimeEndpoint, or of the first of the usual sockets that
	// exists. Run closes only the client that New created.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// LocalRuntime makes a runtime in this process. Nil means that there is none. If
	// Runtime is nil, LocalRuntime is used in two cases:
	// Config.ContainerRuntimeEndpoint is [InProcess]; or it is empty, none of the usual
	// sockets exists, and the node has not used another runtime before. The node's
	// runtime is recorded in its root directory, so that a later start uses the same
	// one.
	LocalRuntime LocalMaker
	// Sources are additional sources of pods; none.
	Sources []podmgr.Source
	// Hardware is the node's machine; the one on which the agent runs.
	Hardware *Hardware
	// Machine reports shutdowns; logind.
	Machine shutdown.Machine
	// Agent may change the agent's configuration before the agent is made; no
	// change.
	Agent func(*agent.Config)

	Settings

	// KubernetesVersion is the Kubernetes version that the node reports to its
	// cluster and in metrics. The default is the result of the function
	// KubernetesVersion.
	KubernetesVersion string

	Log *zap.Logger // silent
	// LogLevel changes the verbosity of Log (/debug/flags/v); it is constant.
	LogLevel server.LogLevel
	// Metrics is exported, also by LocalSocket and NodeAPI; none.
	Metrics *prometheus.Registry
	// Flags returns the flags of the program, for /flagz; none.
	Flags func() map[string]string
}

// Settings are settings without a field in KubeletConfiguration. The zero value of
// each means the default named beside it.
type Settings struct {
	// SecretKeyFile has the key of 32 bytes that encrypts stored Secrets and tokens
	// for starts without a network: raw, in hex or in base64, and readable only by
	// root; secret.key in the root directory, which is created at the first start.
	// With an unusable key they are not stored.
	SecretKeyFile string
	// SecretKeyCredential replaces SecretKeyFile: the name of a credential of the
	// agent's systemd service with such a key (systemd-creds(1) encrypts it with
	// the TPM); none.
	SecretKeyCredential string
	// SecretsInClear stores Secrets and tokens unencrypted, for an encrypted disk.
	SecretsInClear bool
	// Socket is the path of LocalSocket; agent.sock in the root directory.
	Socket string
	// StartsInFlight limits the concurrent starts of pods; the number of CPUs, but at least 4.
	StartsInFlight int
	// PullsPerRegistry limits the concurrent pulls from one registry; no limit.
	PullsPerRegistry int
	// ExecProbes limits the concurrent exec probes; 32.
	ExecProbes int
	// FastProbes checks containers that are not ready yet more often than once a
	// period.
	FastProbes bool
	// PodLogBudget limits the bytes of all logs of a pod; no limit.
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
	// ContainerLogs is the directory of links to container logs, for log collectors: they
	// look in /var/log/containers. Agents may share it: each creates and removes only the
	// links to its own logs. The default is the directory "containers" next to
	// podLogsDir; "-" means no links.
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
	// PinnedImages are names of images that are never removed; see
	// pressure.CollectionConfig. None.
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

// validate refuses more than one source of the key, since it would not be clear which key is used.
func (s *Settings) validate() error {
	named := 0
	for _, is := range []bool{s.SecretKeyFile != "", s.SecretKeyCredential != "", s.SecretsInClear} {
		if is {
			named++
		}
	}
	if named > 1 {
		return fmt.Errorf("Settings: SecretKeyFile is %q, SecretKeyCredential is %q, and SecretsInClear is %t; want at most one of them",
			s.SecretKeyFile, s.SecretKeyCredential, s.SecretsInClear)
	}
	return nil
}

// Supported returns an error if a valid configuration cannot be used on this
// machine. The field is that of KEP-4569; nil and false accept cgroup v1.
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
