package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/node/oom"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/numa"
)

// Hardware describes another machine than the one on which the agent runs: a
// virtual machine in which a runtime runs the pods, or one that does not exist. It
// must not be changed once a node uses it.
type Hardware struct {
	// IPs are the machine's addresses, with the primary address first. At least one is required.
	IPs []netip.Addr
	// Machine has the facts for the Node object. Its capacity of cpu, in whole
	// CPUs, and memory is required; the number of pods comes from the
	// configuration.
	Machine status.Facts
	// NUMA has the machine's CPUs for placement policies: as many as the capacity in the field
	// Machine. It is required unless all policies are none.
	NUMA numa.Machine
	// Booted is the time of the machine's boot. The zero value means that the time is not known.
	Booted time.Time
	// Notices start evictions at once when the machine runs low on memory. If there are none, the
	// agent only measures the memory at intervals. It does not use notifications of the kernel on
	// which it runs, since that kernel does not manage the memory described here.
	Notices []eviction.Notifier
	// KernelLog opens the log of the machine's kernel, to detect OOM kills; see oom.Config.Open.
	// If it is nil, OOM kills are not recorded.
	KernelLog func(fromEnd bool) (oom.Log, error)
}

// validate returns an error that names the first invalid field.
func (h *Hardware) validate() error {
	if len(h.IPs) == 0 {
		return fmt.Errorf("Options.Hardware.IPs is empty; want at least one address")
	}
	cpus, memory := h.Machine.Capacity.Cpu(), h.Machine.Capacity.Memory()
	// CPU policies assign whole CPUs.
	if cpus.MilliValue() < 1000 || cpus.MilliValue()%1000 != 0 || memory.Sign() <= 0 {
		return fmt.Errorf("Options.Hardware.Machine.Capacity: cpu is %s and memory %s; want whole CPUs, 1 or more, and memory above 0", cpus, memory)
	}
	if len(h.NUMA.Nodes) == 0 {
		return nil
	}
	if err := h.NUMA.Validate(); err != nil {
		return fmt.Errorf("Options.Hardware.NUMA: %w", err)
	}
	// Placement uses the CPUs of NUMA, and admission the CPUs of the capacity, so the numbers must
	// be equal.
	if n := int64(h.NUMA.AllCPUs().Len()); n != cpus.Value() {
		return fmt.Errorf("Options.Hardware.NUMA has %d CPUs; want the %d of Machine.Capacity", n, cpus.Value())
	}
	return nil
}

// cpus returns the number of CPUs of the node's machine.
func (b *Builder) cpus() int {
	if b.Hardware != nil {
		return int(b.Hardware.Machine.Capacity.Cpu().Value())
	}
	return node.CPUs()
}

// node returns the hardware's description for pods. The capacity is a copy, since
// pods are added to it.
func (h *Hardware) node(c *kubeletconfig.Config) (node.Machine, error) {
	n := node.Machine{Name: c.Hostname, Capacity: maps.Clone(h.Machine.Capacity)}
	if n.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return n, fmt.Errorf("read host name: %w", err)
		}
		n.Name = strings.ToLower(host)
	}
	// The first one is the primary IP of pods on the host's network.
	for _, ip := range h.IPs {
		n.IPs = append(n.IPs, ip.String())
	}
	n.Capacity[v1.ResourcePods] = *resource.NewQuantity(c.PodLimit(int(h.Machine.Capacity.Cpu().Value())), resource.DecimalSI)
	return n, nil
}

// Facts implements status.Machine. The caller may change the map; the quantities
// are never changed.
func (h *Hardware) Facts(context.Context) (status.Facts, error) {
	f := h.Machine
	f.Capacity = maps.Clone(f.Capacity)
	return f, nil
}

// Interfaces implements status.Network.
func (h *Hardware) Interfaces() ([]netip.Addr, error) { return h.IPs, nil }

// Default implements status.Network. It returns the first address of the family: IPv6 if six is
// true, otherwise IPv4. If the machine has none, it returns the zero Addr.
func (h *Hardware) Default(six bool) netip.Addr {
	for _, ip := range h.IPs {
		if ip.Is6() == six {
			return ip
		}
	}
	return netip.Addr{}
}

// Lookup implements status.Network. It returns h.IPs, since the resolver of this
// process does not know the node's name.
func (h *Hardware) Lookup(context.Context, string) ([]netip.Addr, error) { return h.IPs, nil }

// Describer returns the reader of the node's machine.
func (b *Builder) Describer() status.Machine {
	if b.Hardware != nil {
		return b.Hardware
	}
	return status.System{Files: os.DirFS("/")}
}

// numa returns the CPUs and NUMA nodes of the node's machine.
func (b *Builder) numa() (numa.Machine, error) {
	if b.Hardware != nil {
		return b.Hardware.NUMA, nil
	}
	return numa.ReadSysfs(os.DirFS("/"))
}

// boot returns the ID of the boot of the node's machine. Stored state that has another ID was
// written before the last boot. It returns an error if the ID is not known.
func (b *Builder) boot() (string, error) {
	if b.Hardware != nil {
		return b.Hardware.Machine.BootID, nil
	}
	return bootid.Read(os.DirFS("/"))
}
