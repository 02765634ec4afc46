package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/internal/sysctl"
	"github.com/nodewright/nodewright/agent/lifecycle"
)

// machine is a directory with the kernel's parameters, all 3, and a score.
func machine(t *testing.T) (sys, score string) {
	t.Helper()
	sys, score = t.TempDir(), filepath.Join(t.TempDir(), "oom_score_adj")
	err := os.WriteFile(score, []byte("0\n"), 0o600)
	for _, tunable := range sysctl.Tunables() {
		file := filepath.Join(sys, tunable.Name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("3\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sys, score
}

func run(t *testing.T, cfg lifecycle.HostSetupConfig) (*agenttest.Host, error) {
	t.Helper()
	p, err := lifecycle.NewHostSetup(cfg)
	if err != nil {
		return nil, err
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	if err := p.Join(h); err == nil {
		t.Error("one part joined twice")
	}
	return h, p.Run(t.Context())
}

// What becomes of the kernel's parameters by mode.
func TestModes(t *testing.T) {
	for mode, want := range map[lifecycle.HostSetupMode]int{lifecycle.Leave: 6, lifecycle.Set: 0, lifecycle.Check: 6} {
		sys, score := machine(t)
		_, err := run(t, lifecycle.HostSetupConfig{Kernel: mode, Sys: sys, OwnScore: score})
		if refused := mode == lifecycle.Check; (err != nil) != refused || refused && !strings.Contains(err.Error(), "protectKernelDefaults: true: vm.overcommit_memory is") {
			t.Errorf("mode %d: %v", mode, err)
		}
		differ := 0
		if err := sysctl.Check(sys, sysctl.Tunables()); err != nil {
			differ = len(strings.Split(err.Error(), "\n"))
		}
		if differ != want {
			t.Errorf("mode %d: %d parameters differ, want %d", mode, differ, want)
		}
	}
	sys, _ := machine(t)
	if err := sysctl.Set(sys, sysctl.Tunables()); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, lifecycle.HostSetupConfig{Kernel: lifecycle.Check, Sys: sys}); err != nil {
		t.Errorf("a machine that is as it should be: %v", err)
	}
}

// What cannot be set is said once and keeps nobody from starting.
func TestMachineThatCannotBeSetUp(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	score := -999
	h, err := run(t, lifecycle.HostSetupConfig{
		Kernel: lifecycle.Set, OOMScore: &score, Sys: t.TempDir(), OwnScore: filepath.Join(t.TempDir(), "none"), Log: zap.New(core),
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(h.Calls(), func(s string) bool { return !strings.Contains(s, "KubeletSetupFailed") })); n != 1 || logs.Len() != 2 {
		t.Errorf("%d events, lines %v", n, logs.All())
	}
}

func TestOwnScore(t *testing.T) {
	sys, file := machine(t)
	score := -999
	if _, err := run(t, lifecycle.HostSetupConfig{OOMScore: &score, Sys: sys, OwnScore: file}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(file); string(b) != "-999" {
		t.Errorf("the score is %s", b)
	}
}

// Chains are kept until the agent ends, if it is told to.
func TestChains(t *testing.T) {
	var calls atomic.Int32
	made := make(chan struct{})
	programs := lifecycle.HostPrograms{
		Find: func(name string) (string, error) { return name, nil },
		Call: func(context.Context, string, ...string) (int, string, error) {
			if calls.Add(1) == 6 {
				close(made)
			}
			return 0, "", nil
		},
	}
	if _, err := run(t, lifecycle.HostSetupConfig{Programs: programs}); err != nil || calls.Load() > 0 {
		t.Errorf("%d calls that nobody wanted, %v", calls.Load(), err)
	}
	p, err := lifecycle.NewHostSetup(lifecycle.HostSetupConfig{Chains: true, Programs: programs})
	if err != nil {
		t.Fatal(err)
	}
	stop := agenttest.RunPart(t, p)
	<-made
	stop()
}

func TestConfig(t *testing.T) {
	for _, cfg := range []lifecycle.HostSetupConfig{{Kernel: 7}, {OOMScore: new(1001)}, {Chains: true, Programs: lifecycle.HostPrograms{Every: -1}}} {
		if _, err := lifecycle.NewHostSetup(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
