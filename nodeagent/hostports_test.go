//go:build linux

package nodeagent

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// started is a runtime that notes which sandboxes it starts.
type started struct {
	criapi.RuntimeService
	names []string
}

func (s *started) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	s.names = append(s.names, config.GetMetadata().GetName())
	return "id", nil
}

// A runtime in another process gets no pod with a host port of the agent or of another
// process of the node.
func TestPortsOfTheNodeAreNotHostPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	tcp, udp := int32(l.Addr().(*net.TCPAddr).Port), int32(c.LocalAddr().(*net.UDPAddr).Port)
	conf, _, err := load(t, configHead+"staticPodPath: /m\nreadOnlyPort: 10255\n")
	if err != nil {
		t.Fatal(err)
	}
	if own := OwnPorts(conf); !slices.Equal(own, []uint16{10250, 10255, 10248}) {
		t.Errorf("own ports %v", own)
	}
	rt := &started{}
	g := guardedPorts{rt, OwnPorts(conf)}
	node := &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	for _, c := range []struct {
		name string
		m    *runtimeapi.PortMapping
		l    *runtimeapi.LinuxPodSandboxConfig
		want string // in the error; "" for a start
	}{
		{"healthz", &runtimeapi.PortMapping{HostPort: 10248, ContainerPort: 80}, nil, "host ports of the pod: host port tcp 10248 on every address of the node is one of the agent's own"},
		{"node API by address", &runtimeapi.PortMapping{HostPort: 10250, ContainerPort: 80, HostIp: "192.0.2.1"}, nil, "is one of the agent's own"},
		{"a listener", &runtimeapi.PortMapping{HostPort: tcp, ContainerPort: 80}, nil, "this agent"},
		{"a listener by address", &runtimeapi.PortMapping{HostPort: tcp, ContainerPort: 80, HostIp: "127.0.0.1"}, nil, "listens on 127.0.0.1"},
		{"a listener of UDP", &runtimeapi.PortMapping{HostPort: udp, ContainerPort: 80, Protocol: runtimeapi.Protocol_UDP}, nil, "listens on 127.0.0.1"},
		{"a listener at another address", &runtimeapi.PortMapping{HostPort: tcp, ContainerPort: 80, HostIp: "192.0.2.1"}, nil, ""},
		{"a pod in the node's network", &runtimeapi.PortMapping{HostPort: tcp, ContainerPort: tcp}, node, ""},
		{"no host port", &runtimeapi.PortMapping{ContainerPort: 80}, nil, ""},
	} {
		rt.names = nil
		_, err := g.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: c.name}, PortMappings: []*runtimeapi.PortMapping{c.m}, Linux: c.l,
		}, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || (len(rt.names) == 1) != (err == nil) {
			t.Errorf("%s: %v, want %q; started %q", c.name, err, c.want, rt.names)
		}
	}
}
