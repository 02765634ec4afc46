package agent

import (
	"context"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/runtimeinfo"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/volumemgr"
)

// The inputs of a pod's compilation besides its spec: the machine, the runtime, and the objects
// that the spec refers to.

// facts has the agent's information about the machine and the runtime.
type facts struct {
	cgroupV2 bool
	files    *node.MachineFiles
	handlers *runtimeinfo.Handlers
	name     *runtimeinfo.Name
}

// newFacts reads the machine's cgroup version, which is constant. Everything else is read when a
// pod needs it.
func newFacts(c *Config) facts {
	return facts{
		cgroupV2: node.CgroupV2(), files: &node.MachineFiles{ResolvConf: c.DNS.ResolvConf},
		handlers: &runtimeinfo.Handlers{Runtime: c.Runtime, Classes: c.Cluster.RuntimeClasses},
		name:     &runtimeinfo.Name{Runtime: c.Runtime},
	}
}

// nodeFacts returns the node's inputs for the compilation of pods. Files of the machine are read
// again when they have changed, so that a pod gets the node's current resolver.
func (a *Agent) nodeFacts(pod *v1.Pod) podspec.Node {
	n, c := &a.cfg.Node, &a.cfg
	// Parts of the configuration that pods cannot get are reported here, as in the kubelet.
	resolv := a.facts.files.Resolv()
	a.checkResolv(resolv)
	out := podspec.Node{
		Name: n.Name, IPs: n.IPs, Capacity: n.Capacity, Allocatable: n.Allocatable,
		CgroupV2: a.facts.cgroupV2, ResolvConf: resolv, HostsFile: a.facts.files.Hosts(),
		ClusterDomain: c.DNS.ClusterDomain, ClusterDNS: c.DNS.ClusterDNS,
		PodLogsDir: c.Paths.PodLogs, SeccompDir: filepath.Join(c.Paths.Root, "seccomp"), SeccompDefault: c.Pods.SeccompDefault,
		NoCPUQuota: c.Pods.NoCPUQuota, CPUPeriod: c.Pods.CPUPeriod, SingleProcessOOMKill: c.Pods.SingleProcessOOMKill, MemoryQoS: c.Pods.MemoryQoS, DefaultSysctls: c.Pods.DefaultSysctls,
	}
	if c.Cgroups != nil {
		out.CgroupParent = c.Cgroups.CgroupParent(pod)
	}
	return out
}

// services returns the services for the environment variables of a namespace's pods: the services
// of the namespace, and the service of the API server. As in the kubelet, pods of all namespaces
// get the service of the API server, so that clients in pods find it.
func (a *Agent) services(namespace string) []*v1.Service {
	if a.cfg.Cluster.Services == nil {
		return nil
	}
	return slices.DeleteFunc(a.cfg.Cluster.Services(), func(s *v1.Service) bool {
		return s.Namespace != namespace && (s.Namespace != metav1.NamespaceDefault || s.Name != "kubernetes")
	})
}

// input returns the compiler's input for a pod, including the parts' values. Parts are called
// last, so that they see the complete input.
func (a *Agent) input(ctx context.Context, life podlife.Life, pod *v1.Pod, obs *observed.Pod, mounts volumemgr.Mounts) (podspec.Input, error) {
	handler, features, err := a.facts.handlers.ForPod(ctx, pod)
	if err != nil {
		return podspec.Input{}, err
	}
	in := podspec.Input{
		Pod:        pod,
		Life:       life.N,
		Node:       a.nodeFacts(pod),
		ConfigMaps: a.pods.ConfigMaps(pod.Namespace),
		Secrets:    a.pods.Secrets(pod.Namespace),
		PodIPs:     obs.IPs(),
		Volumes:    mounts.Paths(),
		PodDir:     a.podDir(pod.UID),
		Services:   a.services(pod.Namespace),

		RuntimeHandler: handler, Handler: features, VolumeGroups: mounts.Groups(pod),
	}
	err = hooks.InTurn(a.guard, a.hooks.Compilers, func(c part.Compiler) error { return c.Compile(pod, &in) })
	return in, err
}
