package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/hostchains"
	"github.com/nodewright/nodewright/agent/internal/sysctl"
	"github.com/nodewright/nodewright/agent/part"
)

// hostSetupName is the name of the part.
const hostSetupName = "hostsetup"

// HostSetupMode says what to do with the kernel's parameters.
type HostSetupMode int

// The modes.
const (
	Leave HostSetupMode = iota // no parameter is changed
	Set                        // parameters with other values are set
	Check                      // NewHostSetup fails if parameters differ
)

// HostSetupConfig configures [HostSetup]. The zero value of every field means the default named
// beside it.
type HostSetupConfig struct {
	// Kernel is the mode for the kernel parameters that the kubelet sets, such as
	// vm.overcommit_memory; Leave.
	Kernel HostSetupMode
	// OOMScore is the OOM score adjustment of the agent's own process, -1000 to 1000
	// (oomScoreAdj). If it is nil, the agent does not change it. Programs that the agent starts
	// inherit it.
	OOMScore *int
	// Chains says to maintain the iptables chains KUBE-IPTABLES-HINT and KUBE-FIREWALL,
	// which other programs use (makeIPTablesUtilChains).
	Chains bool

	// Sys and OwnScore are the directory of the kernel's parameters and the file of the agent's
	// score; /proc/sys and /proc/self/oom_score_adj.
	Sys, OwnScore string
	// Programs configures how the chains are read and created.
	Programs HostPrograms

	Log *zap.Logger // if nil, nothing is logged
}

// HostPrograms configures the programs for [HostSetupConfig.Chains]. The zero value of every field
// means the default named beside it.
type HostPrograms struct {
	// Every is the interval of checks of the chains. The default is 1 minute.
	Every time.Duration
	// Find returns the path of iptables or ip6tables; exec.LookPath.
	Find func(name string) (path string, err error)
	// Call runs a program until it exits or ctx ends. It returns the program's exit code and the
	// beginning of its output. err is not nil if the program could not be run. If Call is nil,
	// programs are run on this machine.
	Call func(ctx context.Context, path string, args ...string) (code int, output string, err error)
}

// HostSetup is the part that sets up the machine, as the kubelet does at its start:
// kernel parameters, the OOM score of the agent itself, and iptables chains that other
// programs use.
//
//	p, err := lifecycle.NewHostSetup(lifecycle.HostSetupConfig{Kernel: lifecycle.Set, OOMScore: &score, Chains: true, Log: log})
//
// If HostSetupConfig.Kernel is [Check], NewHostSetup changes no parameter. It returns an error
// that names the parameters with other values (protectKernelDefaults).
//
// # Hooks
//
// The only hook is Run. It sets up the machine when the agent starts, and maintains the
// chains until the agent ends.
//
// # Faults
//
// NewHostSetup changes nothing. If a parameter cannot be set, the part records an event
// of the node (KubeletSetupFailed) and logs it, and the agent runs nevertheless. The
// same holds for the OOM score, which is logged once. Nothing is reset at the end,
// since the next agent sets the same values.
type HostSetup struct {
	cfg    HostSetupConfig
	chains *hostchains.Manager // nil: chains are not maintained
	host   part.Host
}

var (
	_ part.Joiner = (*HostSetup)(nil)
	_ part.Runner = (*HostSetup)(nil)
)

// NewHostSetup checks cfg and, in the mode Check, the machine, and returns a part.
func NewHostSetup(cfg HostSetupConfig) (*HostSetup, error) {
	cfg.Sys, cfg.OwnScore = cmp.Or(cfg.Sys, sysctl.Sys), cmp.Or(cfg.OwnScore, sysctl.OwnScore)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if s := cfg.OOMScore; s != nil && (*s < sysctl.LeastScore || *s > sysctl.MostScore) {
		return nil, fmt.Errorf("hostsetup: HostSetupConfig.OOMScore is %d; want %d to %d", *s, sysctl.LeastScore, sysctl.MostScore)
	}
	switch cfg.Kernel {
	case Leave, Set:
	case Check:
		if err := sysctl.Check(cfg.Sys, sysctl.Tunables()); err != nil {
			return nil, fmt.Errorf("protectKernelDefaults: true: %w", err)
		}
	default:
		return nil, fmt.Errorf("hostsetup: HostSetupConfig.Kernel is %d; want Leave, Set or Check", cfg.Kernel)
	}
	p := &HostSetup{cfg: cfg}
	if cfg.Chains {
		var err error
		run := cfg.Programs
		if p.chains, err = hostchains.New(hostchains.Config{Every: run.Every, Find: run.Find, Call: run.Call, Log: cfg.Log}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Name implements part.Part.
func (*HostSetup) Name() string { return hostSetupName }

// Join implements part.Joiner.
func (p *HostSetup) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// reasonSetup is the kubelet's event reason for a machine that could not be set up.
const reasonSetup = "KubeletSetupFailed"

// Run implements part.Runner.
func (p *HostSetup) Run(ctx context.Context) error {
	if p.cfg.Kernel == Set {
		if err := sysctl.Set(p.cfg.Sys, sysctl.Tunables()); err != nil {
			p.cfg.Log.Warn("failed to set kernel parameters", zap.Error(err))
			p.host.NodeEvent(v1.EventTypeWarning, reasonSetup, "Failed to set kernel parameters: "+err.Error())
		}
	}
	if s := p.cfg.OOMScore; s != nil {
		if err := sysctl.SetOOMScore(p.cfg.OwnScore, *s); err != nil {
			p.cfg.Log.Warn("failed to set the agent's own OOM score; it may be killed before pods", zap.Int("oomScoreAdj", *s), zap.Error(err))
		}
	}
	if p.chains == nil {
		return nil
	}
	return p.chains.Run(ctx)
}
