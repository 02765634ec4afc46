package fit

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
)

// Node has the facts about a node that admission needs. Its functions must not block, and may be
// nil. With the zero value there are no CPUs and no memory for pods.
type Node struct {
	Name string
	// Labels are matched against selectors. LiveLabels overrides them; it may return nil.
	Labels     map[string]string
	LiveLabels func() map[string]string
	// Allocatable limits the requests of pods. A resource that is not in it has no limit, except
	// CPU and memory, whose limit is then 0.
	Allocatable v1.ResourceList
	// Extended returns the numbers of the resources that plugins offer. It is nil if there are no
	// plugins.
	Extended func() map[v1.ResourceName]Count
	// Declared returns the extended resources that other programs have set in the Node's status.
	// For pods from an API server, they count if no plugin offers them.
	Declared func() v1.ResourceList
	// UnsafeSysctls are sysctls that pods may set in addition to the safe ones: full names, or
	// prefixes with a * (allowedUnsafeSysctls).
	UnsafeSysctls []string
	// AppArmor reports whether the kernel enforces AppArmor profiles. If it is nil, profiles are not
	// checked.
	AppArmor func() bool
	// GroupsPolicy reports whether the runtime supports supplementalGroupsPolicy, and whether that
	// is known. If it is nil, the policy is not checked.
	GroupsPolicy func() (supported, known bool)
	// Taints returns the node's current taints. If it is nil, the node has none.
	Taints func() []v1.Taint
	// Features are the features that the node declares (KEP-5328). A pod that needs another feature
	// is rejected. If Features is nil, features are not checked.
	Features []string

	// Placement places CPUs, memory and huge pages for [Admit]. If it is nil, they are not
	// placed.
	Placement *Placement
	// Devices are placed too, on the Machine's NUMA nodes. If it is empty, devices are not
	// checked.
	Devices Devices
	Machine numa.Machine

	// Tally stores the sum of the requests of the other pods between checks. If it is nil, each
	// check computes the sum anew.
	Tally *Tally

	taken map[types.UID]map[string]map[int]int // devices that After has given to pods, by pod, resource and NUMA node
}

// Admit returns nil, or the first reason why pod may not run beside others. The checks are, in
// the kubelet's order: names and enumerations, operating system, resources (whatever its QoS
// class, a pod may not request more than is allocatable), node name, selectors and affinity,
// taints, host ports, groups, AppArmor, sysctls, features. The function [Admit] also decides
// which CPUs, memory and devices the pod gets. The checks are independent; their order only
// decides which of several reasons is reported.
func (p *Node) Admit(pod *v1.Pod, others []*v1.Pod) *Rejection {
	for _, check := range []func(*v1.Pod, []*v1.Pod) *Rejection{
		p.valid, p.operatingSystem, p.Fits, p.name, p.selector, p.taints, p.ports, p.groups, p.appArmor, p.sysctls, p.features,
	} {
		if r := check(pod, others); r != nil {
			return r
		}
	}
	return nil
}

// NodeLabels returns the current labels of the node. Do not modify the map, which may be Labels
// itself.
func (p *Node) NodeLabels() map[string]string {
	if p.LiveLabels == nil {
		return p.Labels
	}
	now := p.LiveLabels()
	if len(now) == 0 {
		return p.Labels
	}
	all := make(map[string]string, len(p.Labels)+len(now)) // cloning nil labels would return nil
	maps.Copy(all, p.Labels)
	maps.Copy(all, now)
	return all
}

// operatingSystem rejects pods for another operating system than the one of the node's
// label. The selector comes first, as in the kubelet.
func (p *Node) operatingSystem(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if want := pod.Spec.NodeSelector[v1.LabelOSStable]; want != "" && want != p.NodeLabels()[v1.LabelOSStable] {
		return &Rejection{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: fmt.Sprintf("pod asks for %s=%s, the node has %q",
			v1.LabelOSStable, want, p.NodeLabels()[v1.LabelOSStable])}
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != p.NodeLabels()[v1.LabelOSStable] {
		return &Rejection{Reason: "PodOSNotSupported", Message: fmt.Sprintf("pod is for %s, the node runs %s", os.Name, p.NodeLabels()[v1.LabelOSStable])}
	}
	return nil
}

// name rejects pods that are bound to another node. It does not reject a pod without a node name.
func (p *Node) name(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != p.Name {
		return &Rejection{Reason: "NodeName", Message: fmt.Sprintf("pod is for node %q, this is %q", pod.Spec.NodeName, p.Name)}
	}
	return nil
}

// nodeAffinity is the scheduler's message, which the kubelet repeats.
const nodeAffinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"

// selector rejects pods whose node selector, or required node affinity, does not match
// the node. Preferences are for schedulers.
func (p *Node) selector(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(p.NodeLabels())) {
		return &Rejection{Reason: "NodeAffinity", Message: nodeAffinity}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	if podmeta.SelectsNode(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, p.Name, p.NodeLabels()) {
		return nil
	}
	return &Rejection{Reason: "NodeAffinity", Message: nodeAffinity}
}

// HostPort is one port of the node that a pod takes. An empty IP stands for all
// addresses.
type HostPort struct {
	IP       string
	Protocol v1.Protocol
	Port     int32
}

// HostPorts returns the ports of the node that a pod takes, including the ports of its sidecars.
// Plain init containers do not count: they have ended before others listen, as in the kubelet. In
// the host's network every container port is one of the node's.
func HostPorts(pod *v1.Pod) []HostPort {
	var ports []HostPort
	add := func(cs []v1.Container) {
		for i := range cs {
			for _, p := range cs[i].Ports {
				port := p.HostPort
				if port == 0 && pod.Spec.HostNetwork {
					port = p.ContainerPort
				}
				if port == 0 {
					continue
				}
				proto := p.Protocol
				// The API server's default, for pods that did not pass through one.
				if proto == "" {
					proto = v1.ProtocolTCP
				}
				ports = append(ports, HostPort{p.HostIP, proto, port})
			}
		}
	}
	add(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if podmeta.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(pod.Spec.InitContainers[i : i+1])
		}
	}
	return ports
}

// portTable has the host ports of a pod, indexed to find conflicts fast: a pod may have many
// ports, and a node many pods.
type portTable struct {
	exact map[HostPort]bool // ports with an address; the address "" means all addresses
	any   map[HostPort]bool // all ports, with the address left out
}

func tableOf(ports []HostPort) portTable {
	t := portTable{map[HostPort]bool{}, map[HostPort]bool{}}
	for _, p := range ports {
		t.exact[p.normal()], t.any[p.everywhere()] = true, true
	}
	return t
}

// normal returns the port with an empty ip for 0.0.0.0 and ::, which both stand for all
// addresses of both families.
func (h HostPort) normal() HostPort {
	if h.IP == "0.0.0.0" || h.IP == "::" {
		h.IP = ""
	}
	return h
}

// everywhere returns the port without its address.
func (h HostPort) everywhere() HostPort { return HostPort{"", h.Protocol, h.Port} }

// clashes reports whether a port conflicts with one of the table.
func (t portTable) clashes(h HostPort) bool {
	if h = h.normal(); h.IP == "" {
		return t.any[h]
	}
	return t.exact[h] || t.exact[h.everywhere()]
}

// ports rejects pods with host ports that other pods use. A port that a process of the node uses
// is noticed only when the container starts.
func (p *Node) ports(pod *v1.Pod, others []*v1.Pod) *Rejection {
	ports := HostPorts(pod)
	if len(ports) == 0 {
		return nil
	}
	want := tableOf(ports)
	for _, o := range others {
		for _, taken := range HostPorts(o) {
			if want.clashes(taken) {
				return &Rejection{Reason: "NodePorts", Message: fmt.Sprintf("host port %d/%s is taken by pod %s/%s",
					taken.Port, taken.Protocol, o.Namespace, o.Name)}
			}
		}
	}
	return nil
}
