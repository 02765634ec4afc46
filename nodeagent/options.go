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

// Options say what a node is made of. Config is required; the zero value of every
// other field means the default named beside it.
type Options struct {
	// Config is that of the node, as kubeletconfig.Load returns it. It must not be
	// changed any more.
	Config *kubeletconfig.Config
	// Parts are made, and called, in this order; none. [Standard] lists all.
	Parts []Maker
	// Services run beside the agent; none. [StandardServices] lists all.
	Services []Service
	// Join connects the node to the cluster of Config.Kubeconfig, and is required
	// beside one: it is that of package nodeagent/cluster. Without a kubeconfig it
	// is not called.
	Join func(*Builder) (*Cluster, error)

	// Runtime and Images are both given, or neither: a client of
	// Config.ContainerRuntimeEndpoint, or else of the first of the usual sockets
	// that is there. Run closes the client that it made, and no other.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// LocalRuntime makes a runtime in this process. It is used without Runtime, if
	// Config.ContainerRuntimeEndpoint is [InProcess], or if it is empty, none of the
	// usual sockets exists, and the node's pods do not run elsewhere; none. Which
	// runtime a node has is on record in its root directory, and does not change
	// by itself.
	LocalRuntime LocalMaker
	// Sources are asked for pods beside those of Config; none.
	Sources []podmgr.Source
	// Hardware is the node's machine; the one that the agent runs on.
	Hardware *Hardware
	// Machine reports when the machine goes down; logind.
	Machine shutdown.Machine
	// Agent is called with the agent's configuration before the agent is made,
	// and may change it; nothing is changed.
	Agent func(*agent.Config)

	Settings

	// KubernetesVersion is the release as which the node presents itself to its
	// cluster and in metrics; that of the function of this name.
	KubernetesVersion string

	Log *zap.Logger // silent
	// LogLevel changes what Log writes (/debug/flags/v); it is not changed.
	LogLevel server.LogLevel
	// Metrics is what is exported, by LocalSocket and NodeAPI too; nothing is.
	Metrics *prometheus.Registry
	// Flags are those of the program, for /flagz; none are shown.
	Flags func() map[string]string
}

// Settings are those that a KubeletConfiguration has no field for. The zero value
// of each means the default named beside it.
type Settings struct {
	// SecretKeyFile has the key of 32 bytes that Secrets and tokens are encrypted
	// with when they are kept for starts without a network: raw, in hex or in base64,
	// and for root's eyes alone; secret.key in the root directory, which is made at
	// the first start. With a key that cannot be used nothing is kept.
	SecretKeyFile string
	// SecretKeyCredential takes the place of SecretKeyFile: it names a credential of
	// the agent's systemd service that is such a key (systemd-creds(1) encrypts it
	// with the TPM); none.
	SecretKeyCredential string
	// SecretsInClear keeps Secrets and tokens as they are: for a disk that is
	// encrypted itself.
	SecretsInClear bool
	// Socket is that of LocalSocket; agent.sock in the root directory.
	Socket string
	// StartsInFlight is how many pods start at a time; 4.
	StartsInFlight int
	// PullsPerRegistry is how many images are pulled from one registry at a time;
	// any number.
	PullsPerRegistry int
	// ExecProbes is how many probes run commands in containers at a time; 32.
	ExecProbes int
	// FastProbes looks at containers that are not ready yet more often than once a
	// period.
	FastProbes bool
	// PodLogBudget is how many bytes all logs of a pod may take; any number.
	PodLogBudget int64
	// LeaveHost leaves the machine below as it is: parameters of the kernel, the
	// agent's own OOM score and the firewall, whatever the configuration says of them.
	// It is for agents on a machine that is somebody's own.
	LeaveHost bool
	// ClaimsDir is where the agents of the machine record what they use of it outside of
	// their root directories: the directory of pod logs, the cgroup of pods, the container
	// runtime, ports, the node's name in a cluster. Run refuses what another one uses
	// (node.TakeClaims); node.ClaimsDir. [NoClaims] is none, for a program that sees to
	// it itself; nodes of Options.Hardware have none.
	ClaimsDir string
	// ContainerLogs gets links to the logs of containers, which log collectors look for;
	// /var/log/containers, wherever podLogsDir is. Several agents may have the same: each
	// makes and removes links to its own logs only. "-" is none, the default of nodes of
	// Options.Hardware.
	ContainerLogs string
	// PollFiles has manifests and logs looked at from time to time (fileCheckFrequency,
	// containerLogMonitorInterval) and no notices of changes asked of the kernel: for file
	// systems that give none, and for many nodes on a machine, whose watches are few.
	PollFiles bool
	// NoPluginSockets opens none of the sockets below the root directory that plugins and
	// clients of pod resources use, and looks for none: device plugins and DRA drivers are
	// those that the program offers itself, with Facts.OfferDevices and Facts.OfferDriver.
	NoPluginSockets bool
	// PinnedImages are names of images that are never removed; see
	// pressure.CollectionConfig. None.
	PinnedImages []string
}

// validate reports everything that is wrong at once. It looks at the machine's
// cgroup version, and at nothing else of it.
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

// validate refuses keys from two places: which one encrypts would be a guess.
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

// Supported returns what is wrong with a valid configuration on this machine. The
// field is that of KEP-4569; nil and false let a machine with cgroup v1 pass.
func Supported(c *kubeletconfig.Config) error {
	if c.FailCgroupV1 != nil && *c.FailCgroupV1 && !node.CgroupV2() {
		return errors.New("invalid configuration: failCgroupV1: true: this machine has cgroup v1; want false here")
	}
	return nil
}

// socket is the path of LocalSocket.
func (o *Options) socket() string {
	if o.Socket != "" {
		return o.Socket
	}
	return filepath.Join(o.Config.RootDir, "agent.sock")
}
