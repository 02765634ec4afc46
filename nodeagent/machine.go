package nodeagent

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
)

// node returns the description of the node's machine with the configuration's values.
// After an error, the description has the values that could be read.
func (b *Builder) node() (node.Machine, error) {
	if b.Hardware == nil {
		return nodeOf(b.Config)
	}
	node, err := b.Hardware.node(b.Config)
	configured(&node, b.Config)
	return node, err
}

// nodeOf returns the description of this machine. Configured names and addresses
// replace detected ones.
func nodeOf(c *kubeletconfig.Config) (node.Machine, error) {
	dir := c.RootDir
	// The root directory may not exist yet; ephemeral storage is the storage of its file system.
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

// configured sets the configured values. Allocatable is computed last: it depends
// on the final capacity.
func configured(node *node.Machine, c *kubeletconfig.Config) {
	if !*c.LocalStorageCapacityIsolation {
		delete(node.Capacity, v1.ResourceEphemeralStorage) // ephemeral storage is not limited
	}
	node.Labels = c.NodeLabels
	node.Allocatable = c.Node(node.Capacity).Allocatable()
}

// nodeIPs returns the node's addresses. These are the configured ones, except that a single
// 0.0.0.0 or :: stands for an address of that family. detected addresses are preferred to all
// others, since they belong to the default route. If the machine has no address of the family,
// nodeIPs returns the detected addresses.
func nodeIPs(configured, detected, all []string) []string {
	want := net.ParseIP(configured[0])
	if !want.IsUnspecified() {
		return configured
	}
	for _, s := range slices.Concat(detected, all) {
		if ip := net.ParseIP(s); ip.IsGlobalUnicast() && (ip.To4() == nil) == (want.To4() == nil) {
			return []string{s}
		}
	}
	return detected
}

// interfaceIPs returns the addresses of all interfaces. It returns none if they cannot be listed.
func interfaceIPs() (ips []string) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP.String())
		}
	}
	return ips
}

// containerLogs returns the directory for the links to container logs: Settings.ContainerLogs or
// its default. It returns "" if there shall be no links, and also if the directory is the one of
// the pods' logs, because links there would be read as logs.
func (b *Builder) containerLogs() string {
	pods := filepath.Clean(b.Config.PodLogsDir)
	dir := cmp.Or(b.Settings.ContainerLogs, filepath.Join(filepath.Dir(pods), "containers"))
	if dir == "-" || dir == pods {
		return ""
	}
	return dir
}
