package hostsetup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/hostchains"
	"github.com/nodewright/nodewright/agent/internal/kernel"
	"github.com/nodewright/nodewright/agent/part"
)

// Name is the name of the part.
const Name = "hostsetup"

// Mode defines what becomes of the kernel's parameters.
type Mode int

// The modes.
const (
	Leave Mode = iota // they are as they are
	Set               // those that differ are set
	Check             // New fails if some differ
)

// Config defines what is set up. The zero value of every field means the default named
// beside it.
type Config struct {
	// Kernel says what becomes of the kernel parameters that the kubelet sets, such as
	// vm.overcommit_memory; Leave.
	Kernel Mode
	// OOMScore is that of the agent's own process, -1000 to 1000 (oomScoreAdj); it is
	// not changed. Programs that the agent starts inherit it.
	OOMScore *int
	// Chains keeps the firewall's chains that others look for, KUBE-IPTABLES-HINT and
	// KUBE-FIREWALL (makeIPTablesUtilChains); they are left alone.
	Chains bool

	// Sys and OwnScore are where the kernel has its parameters and the agent's score;
	// /proc/sys and /proc/self/oom_score_adj.
	Sys, OwnScore string
	// Programs are how the chains are looked at and made.
	Programs Programs

	Log *zap.Logger // silent
}

// Programs are how [Config.Chains] are kept. The zero value of every field means the
// default named beside it.
type Programs struct {
	// Every is the time between two looks at the chains; 1m.
	Every time.Duration
	// Find returns the path of iptables or ip6tables; exec.LookPath.
	Find func(name string) (path string, err error)
	// Call runs a program until it ends, or until ctx does, and returns its exit code
	// and the beginning of its output. err is not nil if it could not be run; nil runs
	// the program.
	Call func(ctx context.Context, path string, args ...string) (code int, output string, err error)
}

// Part sets up the machine.
type Part struct {
	cfg    Config
	chains *hostchains.Manager // nil: left alone
	host   part.Host
}

var (
	_ part.Joiner = (*Part)(nil)
	_ part.Runner = (*Part)(nil)
)

// New checks cfg, and the machine if it is told to, and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	cfg.Sys, cfg.OwnScore = cmp.Or(cfg.Sys, kernel.Sys), cmp.Or(cfg.OwnScore, kernel.OwnScore)
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if s := cfg.OOMScore; s != nil && (*s < kernel.LeastScore || *s > kernel.MostScore) {
		return nil, fmt.Errorf("hostsetup: Config.OOMScore is %d; want %d to %d", *s, kernel.LeastScore, kernel.MostScore)
	}
	switch cfg.Kernel {
	case Leave, Set:
	case Check:
		if err := kernel.Check(cfg.Sys, kernel.Tunables()); err != nil {
			return nil, fmt.Errorf("protectKernelDefaults: true: %w", err)
		}
	default:
		return nil, fmt.Errorf("hostsetup: Config.Kernel is %d; want Leave, Set or Check", cfg.Kernel)
	}
	p := &Part{cfg: cfg}
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
func (*Part) Name() string { return Name }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("hostsetup: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

// reasonSetup is the kubelet's word for a machine that could not be set up.
const reasonSetup = "KubeletSetupFailed"

// Run implements part.Runner.
func (p *Part) Run(ctx context.Context) error {
	if p.cfg.Kernel == Set {
		if err := kernel.Set(p.cfg.Sys, kernel.Tunables()); err != nil {
			p.cfg.Log.Warn("failed to set kernel parameters", zap.Error(err))
			p.host.NodeEvent(v1.EventTypeWarning, reasonSetup, "Failed to set kernel parameters: "+err.Error())
		}
	}
	if s := p.cfg.OOMScore; s != nil {
		if err := kernel.SetOOMScore(p.cfg.OwnScore, *s); err != nil {
			p.cfg.Log.Warn("failed to set the agent's own OOM score; it may be killed before pods", zap.Int("oomScoreAdj", *s), zap.Error(err))
		}
	}
	if p.chains == nil {
		return nil
	}
	return p.chains.Run(ctx)
}
