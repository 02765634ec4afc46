//go:build linux

package localcri

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/internal/rpcerror"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
	"github.com/nodewright/nodewright/network"
)

// maxRequest limits the size of a request in bytes. It leaves room for the largest annotations of
// a pod. The limit matters because the record contains the request, and is written at each
// change.
const maxRequest = 1 << 20

// maxHostname is the kernel's limit (sethostname(2)).
const maxHostname = 64

func invalid(field string, value any, allowed string) error {
	return errorf(codes.InvalidArgument, "%s %.200q: %s", field, fmt.Sprint(value), allowed)
}

// checkSandbox rejects a configuration that no machine could support.
func checkSandbox(c *runtimeapi.PodSandboxConfig) error {
	m := c.GetMetadata()
	switch {
	case c == nil:
		return invalid("config", "", "is required")
	case m == nil || m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "":
		return invalid("config.metadata", m, "must have a name, a namespace and a UID")
	case c.GetWindows() != nil:
		return invalid("config.windows", "", "must be empty on Linux")
	case len(c.GetHostname()) > maxHostname || strings.ContainsAny(c.GetHostname(), "\x00\n"):
		return invalid("config.hostname", c.GetHostname(), fmt.Sprintf("must have at most %d bytes in one line", maxHostname))
	case strings.ContainsRune(c.GetLogDirectory(), 0):
		return invalid("config.log_directory", c.GetLogDirectory(), "must not contain NUL")
	}
	d := c.GetDnsConfig()
	for _, s := range slices.Concat(d.GetServers(), d.GetSearches(), d.GetOptions()) {
		if strings.ContainsAny(s, "\n\x00") {
			return invalid("config.dns_config", s, "must be one line")
		}
	}
	if n := protoSize(c); n > maxRequest {
		return invalid("config", fmt.Sprintf("%d bytes", n), fmt.Sprintf("must have at most %d", maxRequest))
	}
	opts := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	for field, mode := range map[string]runtimeapi.NamespaceMode{"network": opts.GetNetwork(), "ipc": opts.GetIpc()} {
		if mode != runtimeapi.NamespaceMode_POD && mode != runtimeapi.NamespaceMode_NODE {
			return invalid("config.linux.security_context.namespace_options."+field, mode, "must be POD or NODE")
		}
	}
	switch opts.GetPid() {
	case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_NODE:
	default:
		return invalid("config.linux.security_context.namespace_options.pid", opts.GetPid(), "must be POD, CONTAINER or NODE")
	}
	if err := checkPorts(c.GetPortMappings()); err != nil {
		return err
	}
	if err := checkUserns(opts); err != nil {
		return err
	}
	return spaces.CheckSysctls(c.GetLinux().GetSysctls(), ownSpaces(opts))
}

// ownSpaces returns which namespaces a sandbox has for itself.
func ownSpaces(opts *runtimeapi.NamespaceOption) spaces.Own {
	return spaces.Own{
		IPC:     opts.GetIpc() == runtimeapi.NamespaceMode_POD,
		Network: opts.GetNetwork() == runtimeapi.NamespaceMode_POD, UTS: opts.GetNetwork() == runtimeapi.NamespaceMode_POD,
		User: ownUserns(opts),
	}
}

func ownUserns(opts *runtimeapi.NamespaceOption) bool {
	return opts.GetUsernsOptions() != nil && opts.GetUsernsOptions().GetMode() == runtimeapi.NamespaceMode_POD
}

func protoSize(m proto.Message) int { return proto.Size(m) }

// checkUserns rejects mappings that the kernel or images do not support.
func checkUserns(opts *runtimeapi.NamespaceOption) error {
	const field = "config.linux.security_context.namespace_options.userns_options"
	const least = 65536 // number of IDs: all of 16 bits
	u := opts.GetUsernsOptions()
	switch {
	case u == nil || u.GetMode() == runtimeapi.NamespaceMode_NODE:
		if len(u.GetUids())+len(u.GetGids()) > 0 {
			return invalid(field+".mode", u.GetMode(), "must be POD with mappings")
		}
		return nil
	case u.GetMode() != runtimeapi.NamespaceMode_POD:
		return invalid(field+".mode", u.GetMode(), "must be POD or NODE")
	case opts.GetNetwork() == runtimeapi.NamespaceMode_NODE:
		return invalid(field+".mode", u.GetMode(), "must be NODE in a sandbox with the network of the node")
	}
	for name, m := range map[string][]*runtimeapi.IDMapping{"uids": u.GetUids(), "gids": u.GetGids()} {
		switch {
		case len(m) != 1:
			return invalid(field+"."+name, fmt.Sprintf("%d mappings", len(m)), "must be one")
		case m[0].GetContainerId() != 0:
			return invalid(field+"."+name+"[0].container_id", m[0].GetContainerId(), "must be 0")
		case m[0].GetLength() < least:
			return invalid(field+"."+name+"[0].length", m[0].GetLength(), fmt.Sprintf("must be at least %d", least))
		}
	}
	return nil
}

// Kubernetes' annotations that limit a pod's traffic, in bits per second.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// bandwidth returns the traffic limits in the annotations, in bits per second. For an invalid or
// too large value, it returns a limit that the network rejects.
func bandwidth(annotations map[string]string) (ingress, egress uint64) {
	read := func(name string) uint64 {
		q, err := quantity.Parse(annotations[name])
		if annotations[name] == "" {
			return 0
		}
		if err != nil || q.Sign() <= 0 {
			return 1 // the network rejects it and names the field
		}
		return uint64(q.Value())
	}
	return read(ingressAnnotation), read(egressAnnotation)
}

// checkContainer rejects a configuration that no machine could support, as far as
// ocispec does not check it.
func checkContainer(c *runtimeapi.ContainerConfig) error {
	switch {
	case c == nil || c.GetMetadata() == nil || c.GetMetadata().GetName() == "":
		return invalid("config.metadata", c.GetMetadata(), "must have a name")
	case c.GetImage().GetImage() == "":
		return invalid("config.image.image", "", "is required")
	case c.GetWindows() != nil:
		return invalid("config.windows", "", "must be empty on Linux")
	case logEscapes(c) || strings.ContainsRune(c.GetLogPath(), 0):
		return invalid("config.log_path", c.GetLogPath(), "must be a path below the log directory")
	case c.GetStopSignal() != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT && !knownSignal(c.GetStopSignal()):
		return invalid("config.stop_signal", c.GetStopSignal(), "is no signal of Linux")
	}
	if n := protoSize(c); n > maxRequest {
		return invalid("config", fmt.Sprintf("%d bytes", n), fmt.Sprintf("must have at most %d", maxRequest))
	}
	return nil
}

func knownSignal(s runtimeapi.Signal) bool {
	_, ok := signalNumber(signalName(s))
	return ok
}

// attachment returns the network's description of a sandbox.
func attachment(id string, c *runtimeapi.PodSandboxConfig) network.Attachment {
	m := c.GetMetadata()
	a := network.Attachment{
		ID: id, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(), Hostname: c.GetHostname(),
		Annotations: c.GetAnnotations(), Labels: c.GetLabels(), CgroupParent: c.GetLinux().GetCgroupParent(),
		DNS: network.DNS{Servers: c.GetDnsConfig().GetServers(), Searches: c.GetDnsConfig().GetSearches(), Options: c.GetDnsConfig().GetOptions()},
	}
	for _, p := range c.GetPortMappings() {
		ip, _ := netip.ParseAddr(p.GetHostIp()) // "" means all addresses
		a.Ports = append(a.Ports, network.Port{
			Protocol: strings.ToLower(p.GetProtocol().String()), HostIP: ip, HostPort: uint16(p.GetHostPort()), ContainerPort: uint16(p.GetContainerPort()),
		})
	}
	a.Ingress, a.Egress = bandwidth(c.GetAnnotations())
	return a
}

// checkPorts rejects port numbers and addresses that an attachment cannot express.
func checkPorts(ports []*runtimeapi.PortMapping) error {
	for i, p := range ports {
		field := fmt.Sprintf("config.port_mappings[%d].", i)
		if p.GetHostPort() < 0 || p.GetHostPort() > 65535 {
			return invalid(field+"host_port", p.GetHostPort(), "must be from 0 to 65535")
		}
		if p.GetContainerPort() < 0 || p.GetContainerPort() > 65535 {
			return invalid(field+"container_port", p.GetContainerPort(), "must be from 0 to 65535")
		}
		if _, err := netip.ParseAddr(p.GetHostIp()); p.GetHostIp() != "" && err != nil {
			return invalid(field+"host_ip", p.GetHostIp(), "must be an IP address, or empty for all")
		}
	}
	return nil
}

// networkError adds the gRPC code to an error of the network.
func networkError(err error) error {
	code := codes.Code(network.CodeOf(err)) // the network uses gRPC's numbers
	if code == codes.OK || code == codes.Unknown {
		return coded(err)
	}
	return rpcerror.New(code, shown(err.Error()))
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
