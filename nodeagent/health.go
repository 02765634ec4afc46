package nodeagent

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/server"
)

// checks returns the checks of /healthz, besides ping and log. The watchdog uses
// the same ones.
func (n *Node) checks() []server.Check {
	return checksOf(n, n.builder.Config, n.builder.Facts.Checks)
}

// checksOf returns the checks in more, and a check that the agent's main loop still runs. It does
// not check the runtime, because a restart of the agent would not repair the runtime. agent is an
// interface so that tests need no agent.
func checksOf(agent interface{ LastTurn() time.Time }, c *kubeletconfig.Config, more []Check) []server.Check {
	checks := []server.Check{server.SyncLoop(agent.LastTurn, c.SyncFrequency.Duration)}
	for _, m := range more {
		checks = append(checks, server.Check{Name: m.Name, Check: func(*http.Request) error { return m.Err() }})
	}
	return checks
}

// healthChecks returns the node's checks, and one check for the sources of pods. The check of
// sources is for people and monitoring. The watchdog does not use it, since a failed source is
// restarted without the watchdog.
func (n *Node) healthChecks() []server.Check {
	return append(n.checks(), sourcesCheck(n.SourcesErr))
}

// sourcesCheck returns the check of the sources of pods. err returns nil if all sources work.
func sourcesCheck(err func() error) server.Check {
	return server.Check{Name: "pod-sources", Check: func(*http.Request) error { return err() }}
}

// Healthz serves only /healthz, on a port of its own, if the configuration has one.
func Healthz(n *Node) (name string, run func(context.Context) error, err error) {
	if *n.builder.Config.HealthzPort == 0 {
		return "", nil, nil
	}
	n.builder.claimPort(n.builder.Config.HealthzBindAddress, *n.builder.Config.HealthzPort, "healthzPort (--healthz-port)")
	s, err := newHealthServer(n.builder.Config, n, n.builder.Node.Name, n.healthChecks(), n.builder.Log)
	if err != nil {
		return "", nil, err
	}
	return "healthz", s.Run, nil
}

// newHealthServer makes a server of /healthz alone, over HTTP and without
// authentication, as in the kubelet.
func newHealthServer(c *kubeletconfig.Config, pods server.Pods, node string, checks []server.Check, log *zap.Logger) (*server.Server, error) {
	return server.New(server.Config{
		Node: node, Pods: pods, HealthzPort: int(*c.HealthzPort), HealthzAddress: c.HealthzBindAddress,
		Health: checks, Log: log.Named("healthz"),
	})
}
