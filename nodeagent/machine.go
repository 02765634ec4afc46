package nodeagent

import (
	"net"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
)

// node describes the node's machine as the configuration says. The description
// comes beside an error, with what could be read.
func (b *Builder) node() (node.Machine, error) {
	if b.Hardware == nil {
		return nodeOf(b.Config)
	}
	node, err := b.Hardware.node(b.Config)
	configured(&node, b.Config)
	return node, err
}

// nodeOf describes this machine as the configuration says. Names and addresses of
// the configuration replace what was found.
func nodeOf(c *kubeletconfig.Config) (node.Machine, error) {
	dir := c.RootDir
	// The root directory may not be there yet, and its file system is what
	// ephemeral storage is measured by.
	if _, err := os.Stat(dir); err != nil {
		dir = "/"
	}
	node, err := node.DetectMachine(dir, c.PodLimit(node.CPUs()))
	// The override is applied even if the machine could not be read.
	if c.Hostname != "" {
		node.Name = c.Hostname
	}
	if len(c.NodeIPs) > 0 {
		node.IPs = nodeIPs(c.NodeIPs, node.IPs, interfaceIPs())
	}
	configured(&node, c)
	return node, err
}

// configured sets what a configuration says of any machine. Allocatable is computed
// last: it depends on the capacity that is left.
func configured(node *node.Machine, c *kubeletconfig.Config) {
	if !*c.LocalStorageCapacityIsolation {
		delete(node.Capacity, v1.ResourceEphemeralStorage) // nobody counts it
	}
	node.Labels = c.NodeLabels
	node.Allocatable = c.Node(node.Capacity).Allocatable()
}

// nodeIPs are the node's addresses: those asked for, or, for a lone 0.0.0.0 or ::,
// one of that family. A machine that has none keeps the detected ones. Detected
// ones come first, since they are of the default route.
func nodeIPs(asked, detected, all []string) []string {
	want := net.ParseIP(asked[0])
	if !want.IsUnspecified() {
		return asked
	}
	for _, s := range slices.Concat(detected, all) {
		if ip := net.ParseIP(s); ip.IsGlobalUnicast() && (ip.To4() == nil) == (want.To4() == nil) {
			return []string{s}
		}
	}
	return detected
}

// interfaceIPs returns the addresses of all interfaces; none if they cannot be
// listed.
func interfaceIPs() (ips []string) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP.String())
		}
	}
	return ips
}

// defaultContainerLogs is where log collectors look for links to the logs of containers,
// wherever podLogsDir is: a constant of the kubelet, too.
const defaultContainerLogs = "/var/log/containers"

// containerLogs is Settings.ContainerLogs with its default; "" for none. Links among the
// logs of pods would pass for logs.
func (b *Builder) containerLogs() string {
	dir := b.Settings.ContainerLogs
	if dir == "" && b.Hardware == nil {
		dir = defaultContainerLogs
	}
	if dir == "-" || dir == filepath.Clean(b.Config.PodLogsDir) {
		return ""
	}
	return dir
}
