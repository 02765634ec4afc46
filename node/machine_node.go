package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/podmeta"
)

// Machine describes a machine for pods.
type Machine struct {
	// Name is the node's name. It is required, and in lower case.
	Name string
	// IPs are the node's addresses, primary first. They become status.hostIPs of pods.
	IPs []string
	// Labels are matched against node selectors. The well-known labels for
	// hostname, operating system and architecture are added to them.
	Labels map[string]string
	// Capacity and Allocatable limit the admitted pods. If Allocatable is nil, it is Capacity
	// minus the memory reserved for huge pages.
	Capacity, Allocatable v1.ResourceList
}

// DetectMachine reads this machine's name, addresses, CPUs, memory, huge pages and the
// disk under dir. maxPods becomes the capacity of pods. If the hostname cannot be read,
// the returned Machine is empty. If memory or huge pages cannot be read, the error
// names them, and the returned Machine has all other values.
func DetectMachine(dir string, maxPods int64) (Machine, error) {
	host, err := os.Hostname()
	if err != nil {
		return Machine{}, fmt.Errorf("read host name: %w", err)
	}
	n := Machine{
		Name: strings.ToLower(strings.TrimSpace(host)),
		Capacity: v1.ResourceList{
			v1.ResourceCPU:  *resource.NewQuantity(int64(CPUs()), resource.DecimalSI),
			v1.ResourcePods: *resource.NewQuantity(maxPods, resource.DecimalSI),
		},
	}
	if ip := outwardIP(); ip != "" {
		n.IPs = []string{ip}
	}
	if disk, err := diskCapacity(dir); err == nil {
		n.Capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	pages, err := hugePages(kernel.This)
	if err != nil {
		err = fmt.Errorf("read huge pages: %w", err)
	}
	maps.Copy(n.Capacity, pages)
	info, merr := kernel.This.MemInfo(context.Background())
	total, known := info.Total.Number()
	if merr == nil && !known {
		merr = errors.New("/proc/meminfo: line \"MemTotal\" is missing")
	}
	if merr != nil {
		return n, errors.Join(err, fmt.Errorf("read memory capacity: %w", merr))
	}
	n.Capacity[v1.ResourceMemory] = *resource.NewQuantity(int64(total), resource.BinarySI)
	return n, err
}

// outwardIP returns the source address of the default route. Without one, it returns the first
// global address of any interface, or "".
func outwardIP() string {
	// Connecting a datagram socket uses the routing table and sends nothing.
	// The address is TEST-NET-1 (RFC 5737).
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer func() { _ = c.Close() }()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			return a.IP.String()
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// WithDefaults returns a copy with the well-known labels, and with Allocatable if it
// was nil.
func (n Machine) WithDefaults() Machine {
	all := map[string]string{
		v1.LabelHostname:   n.Name,
		v1.LabelOSStable:   runtime.GOOS,
		v1.LabelArchStable: runtime.GOARCH,
	}
	for k, v := range n.Labels {
		all[k] = v
	}
	n.Labels = all
	if n.Allocatable == nil {
		n.Allocatable = podmeta.LeftOfMemory(n.Capacity.DeepCopy(), n.Capacity)
	}
	return n
}

// PrimaryIP returns the first of the node's addresses, or "".
func (n *Machine) PrimaryIP() string {
	if len(n.IPs) == 0 {
		return ""
	}
	return n.IPs[0]
}
