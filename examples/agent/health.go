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

// doorsOf are the parts that others ask: the node's API, the port of /healthz,
// and systemd's watchdog. One that ends leaves the others.
func doorsOf(f *runFlags, c *kubeletconfig.KubeletConfiguration, a *agent.Agent, cl *cluster, node agent.Node, rt *cri.Client, checks []server.Check, log *zap.Logger, reg *prometheus.Registry) ([]part, error) {
	var parts []part
	api, err := newNodeServer(f, c, a, cl, node, rt, checks, log, reg)
	if err != nil {
		return nil, err
	}
	if api != nil {
		parts = append(parts, part{"node API", api.run})
	}
	if *c.HealthzPort != 0 {
		health, err := newHealthServer(c, a, node.Name, checks, log)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{"healthz", health.Run})
	}
	dog, err := newWatchdog(checks, log)
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
