package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podmeta"
)

// Admitter decides whether a pod may run on this node. It must be quick and
// must not block: the whole agent waits for it. It may be asked about the same
// pod several times, with different others, and from any goroutine; what it says
// is not a promise that the pod comes.
type Admitter interface {
	// Admit returns nil, or why pod may not run beside others, which are
	// the pods that run or were admitted already.
	Admit(pod *v1.Pod, others []*v1.Pod) *Rejection
}

// Rejection says why a pod may not run here. Reason is a CamelCase word of
// the Kubernetes API, such as OutOfcpu or NodePorts.
type Rejection struct {
	Reason  string
	Message string
	// RetryUntil, if not zero, lets the pod wait instead: it stays pending with
	// this reason and message, is asked about again whenever something was
	// given back, and is turned away at that time. The first one that a pod is
	// given counts. Pods that could be admitted if others had ended that are
	// ending wait by themselves.
	RetryUntil time.Time

	final bool // room would not help
}

// predicates is the Admitter that every agent has: what the node is and has,
// against what the pod asks.
type predicates struct {
	nodeName    string
	fixed       map[string]string        // labels
	live        func() map[string]string // over these; may be nil, and return nil
	allocatable v1.ResourceList
	devices     func() map[v1.ResourceName]devicemgr.Count // nil: there are none
	others      func() v1.ResourceList                     // Config.NodeResources
	unsafe      []string                                   // sysctls that pods may set beside the safe ones
	armored     func() bool                                // the kernel enforces AppArmor profiles; nil: not asked
}

func (p *predicates) Admit(pod *v1.Pod, others []*v1.Pod) *Rejection {
	for _, check := range []func(*v1.Pod, []*v1.Pod) *Rejection{
		p.operatingSystem, p.fit, p.name, p.selector, p.ports, p.appArmor, p.sysctls,
	} {
		if r := check(pod, others); r != nil {
			return r
		}
	}
	return nil
}

// labels are the node's.
func (p *predicates) labels() map[string]string {
	if p.live == nil {
		return p.fixed
	}
	now := p.live()
	if len(now) == 0 {
		return p.fixed
	}
	all := maps.Clone(p.fixed)
	maps.Copy(all, now)
	return all
}

func (p *predicates) operatingSystem(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if want := pod.Spec.NodeSelector[v1.LabelOSStable]; want != "" && want != p.labels()[v1.LabelOSStable] {
		return &Rejection{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: fmt.Sprintf("pod asks for %s=%s, the node has %q",
			v1.LabelOSStable, want, p.labels()[v1.LabelOSStable])}
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != p.labels()[v1.LabelOSStable] {
		return &Rejection{Reason: "PodOSNotSupported", Message: fmt.Sprintf("pod is for %s, the node runs %s", os.Name, p.labels()[v1.LabelOSStable])}
	}
	return nil
}

func (p *predicates) name(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != p.nodeName {
		return &Rejection{Reason: "NodeName", Message: fmt.Sprintf("pod is for node %q, this is %q", pod.Spec.NodeName, p.nodeName)}
	}
	return nil
}

func (p *predicates) selector(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(p.labels())) {
		return &Rejection{Reason: "NodeAffinity", Message: "the node's labels do not match spec.nodeSelector"}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	if podmeta.SelectsNode(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, p.nodeName, p.labels()) {
		return nil
	}
	return &Rejection{Reason: "NodeAffinity", Message: "the node matches no term of the required node affinity"}
}

// hostPort is one port of the node that a pod takes.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
}

func hostPorts(pod *v1.Pod) []hostPort {
	var ports []hostPort
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
				if proto == "" {
					proto = v1.ProtocolTCP
				}
				ports = append(ports, hostPort{p.HostIP, proto, port})
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

func (h hostPort) clashes(o hostPort) bool {
	anyIP := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return h.port == o.port && h.protocol == o.protocol && (h.ip == o.ip || anyIP(h.ip) || anyIP(o.ip))
}

func (p *predicates) ports(pod *v1.Pod, others []*v1.Pod) *Rejection {
	want := hostPorts(pod)
	if len(want) == 0 {
		return nil
	}
	for _, o := range others {
		for _, taken := range hostPorts(o) {
			if i := slices.IndexFunc(want, taken.clashes); i >= 0 {
				return &Rejection{Reason: "NodePorts", Message: fmt.Sprintf("host port %d/%s is taken by pod %s/%s",
					want[i].port, want[i].protocol, o.Namespace, o.Name)}
			}
		}
	}
	return nil
}

func (p *predicates) fit(pod *v1.Pod, others []*v1.Pod) *Rejection {
	if limit, ok := p.allocatable[v1.ResourcePods]; ok && int64(len(others))+1 > limit.Value() {
		return &Rejection{Reason: "OutOfpods", Message: fmt.Sprintf("node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d",
			len(others), limit.Value())}
	}
	want := podmeta.Requests(pod)
	offered := p.offered(want)
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, string(name))
	}
	slices.Sort(names) // the first one that is short is the one reported
	for _, n := range names {
		name := v1.ResourceName(n)
		q := want[name]
		have, known := p.allocatable[name]
		if c, ok := offered[name]; ok {
			if c.Away {
				continue // whether to wait for it is said with the devices
			}
			have, known = count(c.Free+c.Used), true
		} else if !known && extended(name) && isScheduled(pod) {
			if have, known = p.declared(name); !known {
				continue
			}
		} else if r := p.notOffered(name, known); r != nil && !q.IsZero() {
			return r
		}
		if q.IsZero() || (!known && !strings.Contains(n, "/") && name != v1.ResourceCPU && name != v1.ResourceMemory) {
			continue
		}
		var used resource.Quantity
		for _, o := range others {
			used.Add(podmeta.Requests(o)[name])
		}
		sum := used.DeepCopy()
		sum.Add(q)
		if sum.Cmp(have) > 0 {
			return &Rejection{Reason: "OutOf" + n, Message: fmt.Sprintf("node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s",
				n, q.String(), used.String(), have.String())}
		}
	}
	return nil
}
