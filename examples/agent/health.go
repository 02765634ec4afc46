package main

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/server"
)

// devicePluginCheck is the check of what device plugins register with.
const devicePluginCheck = "device-plugin"

// checksOf are those of /healthz, beside ping and log. A runtime that is down is
// none of them: whoever restarts an agent that is not healthy would not mend it.
func checksOf(a interface{ LastTurn() time.Time }, c *kubeletconfig.KubeletConfiguration, devices agent.Devices) []server.Check {
	checks := []server.Check{server.SyncLoop(a.LastTurn, c.SyncFrequency.Duration)}
	if d, ok := devices.(interface{ Healthy() error }); ok {
		checks = append(checks, server.Check{Name: devicePluginCheck, Check: func(*http.Request) error { return d.Healthy() }})
	}
	return checks
}

// doors are what others ask, and what they are made of. cluster is nil for an
// agent that runs alone.
type doors struct {
	flags   *runFlags
	conf    *kubeletconfig.KubeletConfiguration
	agent   *agent.Agent
	cluster *cluster
	node    agent.Node
	runtime *cri.Client
	checks  []server.Check
	level   *verbosity
	log     *zap.Logger
	reg     *prometheus.Registry
}

// parts are the node's API, the port of /healthz, and systemd's watchdog. One
// that ends leaves the others.
func (d *doors) parts() ([]part, error) {
	var parts []part
	api, err := newNodeServer(d)
	if err != nil {
		return nil, err
	}
	if api != nil {
		parts = append(parts, part{"node API", api.run})
	}
	if *d.conf.HealthzPort != 0 {
		health, err := newHealthServer(d.conf, d.agent, d.node.Name, d.checks, d.log)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{"healthz", health.Run})
	}
	dog, err := newWatchdog(d.checks, d.log)
	if err != nil {
		return nil, err
	}
	if dog != nil {
		parts = append(parts, part{"watchdog", dog.run})
	}
	return parts, nil
}

// newHealthServer serves /healthz, and nothing else, on a port of its own.
func newHealthServer(c *kubeletconfig.KubeletConfiguration, pods server.Pods, node string, checks []server.Check, log *zap.Logger) (*server.Server, error) {
	return server.New(server.Config{
		Node: node, Pods: pods, HealthzPort: int(*c.HealthzPort), HealthzAddress: c.HealthzBindAddress,
		Health: checks, Log: log.Named("healthz"),
	})
}
