package nodeagent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// OwnPorts returns the TCP ports on which a node with this configuration listens. No pod can have
// one of them as a host port.
func OwnPorts(c *kubeletconfig.Config) (all []uint16) {
	for _, port := range []*int32{&c.Port, &c.ReadOnlyPort, c.HealthzPort} {
		if port != nil && *port > 0 && *port <= 1<<16-1 {
			all = append(all, uint16(*port))
		}
	}
	return all
}

// guardedPorts is a runtime in another process. It starts no sandbox with a host port on
// which a process of the node listens: the runtime's rules would take the packets from that
// process.
type guardedPorts struct {
	criapi.RuntimeService
	own []uint16
}

// RunPodSandbox checks the host ports, and calls the runtime.
func (g guardedPorts) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	held := hostports.Held{Reserved: g.own}
	err := held.Take(config.GetMetadata().GetName(), hostClaims(config)...)
	held.Close() // the runtime may want to listen on them
	if err != nil {
		return "", fmt.Errorf("host ports of the pod: %w", err)
	}
	return g.RuntimeService.RunPodSandbox(ctx, config, handler)
}

// hostClaims returns the host ports of a sandbox. It returns none for a pod in the host's
// network.
func hostClaims(config *runtimeapi.PodSandboxConfig) (all []hostports.Claim) {
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return nil
	}
	for _, m := range config.GetPortMappings() {
		proto, ok := hostports.Proto(strings.ToLower(m.GetProtocol().String()))
		if ok && m.GetHostPort() > 0 && m.GetHostPort() <= 1<<16-1 {
			addr, _ := netip.ParseAddr(m.GetHostIp()) // an invalid address counts as all addresses
			all = append(all, hostports.Claims(proto, addr, uint16(m.GetHostPort()))...)
		}
	}
	return all
}
