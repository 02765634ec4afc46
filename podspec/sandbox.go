package podspec

import (
	"errors"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/podmeta"
)

// Sandbox compiles the configuration of the pod's sandbox. attempt is the number of earlier
// sandboxes of this pod.
func Sandbox(in Input, attempt uint32) (*SandboxPlan, error) {
	pod := in.Pod
	col := &collector{reason: ReasonCreateSandbox}
	spec := field.NewPath("spec")
	conf := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		LogDirectory: LogDirectory(in.Node.PodLogsDir, pod),
		Labels:       podLabels(pod),
		Annotations:  podmeta.WithLife(maps.Clone(pod.Annotations), cri.AnnotationLife, in.Life),
		PortMappings: portMappings(pod),
	}
	// The pod's labels are added, but cannot override the labels that identify it.
	for k, v := range pod.Labels {
		if _, ours := conf.Labels[k]; !ours {
			conf.Labels[k] = v
		}
	}
	// A pod in the host's network also has the host's UTS namespace, and so its host name.
	if !pod.Spec.HostNetwork {
		host, domain, err := hostname(in)
		var wrong *nameError
		// The error tells which field is wrong.
		if errors.As(err, &wrong) {
			col.add(spec.Child(wrong.field), "%s", wrong.text)
		}
		conf.Hostname = host
		// setHostnameAsFQDN needs a subdomain; without one there is no domain to add.
		if fqdn := pod.Spec.SetHostnameAsFQDN; fqdn != nil && *fqdn && domain != "" {
			conf.Hostname = host + "." + domain
			// The kernel's limit for host names, __NEW_UTS_LEN.
			if len(conf.Hostname) > 64 {
				col.add(spec.Child("setHostnameAsFQDN"), "%q has %d characters; a host name may have 64", conf.Hostname, len(conf.Hostname))
				col.problems[len(col.problems)-1].Known = "failed to construct FQDN from pod hostname and cluster domain, FQDN "
			}
		}
	}
	dns, err := dnsConfig(in, col)
	if err != nil {
		col.add(spec.Child("dnsPolicy"), "%v", err)
	}
	conf.DnsConfig = dns
	userNamespace(in, col)
	if sc := pod.Spec.SecurityContext; sc != nil {
		// Only the pod's own IDs are checked here. Container checks the IDs of each container.
		ids(sc, nil, nil, col)
		// A runtime that ignores the policy would also add the groups of the image (KEP-3619).
		if p := sc.SupplementalGroupsPolicy; p != nil && *p == v1.SupplementalGroupsPolicyStrict && !in.Handler.SupplementalGroupsPolicy {
			col.add(spec.Child("securityContext", "supplementalGroupsPolicy"), "Strict is not supported by the runtime: want Merge")
		}
	}
	conf.Linux = linuxSandbox(in, col)
	return &SandboxPlan{Config: conf, Warnings: col.warnings}, col.err()
}

// userNamespace rejects a pod whose request for a user namespace cannot be met: it must not run
// with less isolation than requested.
func userNamespace(in Input, col *collector) {
	s := &in.Pod.Spec
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	path := field.NewPath("spec", "hostUsers")
	// The host's namespaces belong to the host's user namespace, so a pod with its own user
	// namespace would have no rights in them.
	for _, o := range []struct {
		name string
		set  bool
	}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
		if o.set {
			col.add(path, "false cannot be combined with %s: true", o.name)
		}
	}
	switch {
	case !in.Handler.UserNamespaces:
		col.add(path, "runtime handler %q does not support user namespaces", in.RuntimeHandler)
	case in.UserNamespace == nil:
		col.add(path, "no range of user IDs is allocated to the pod")
	}
}

// LogDirectory returns the directory of a pod's container logs.
func LogDirectory(root string, pod *v1.Pod) string {
	return filepath.Join(root, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// podLabels returns the labels by which the agent and tools find the sandboxes and containers of
// a pod.
func podLabels(pod *v1.Pod) map[string]string {
	return map[string]string{
		cri.LabelPodName:      pod.Name,
		cri.LabelPodNamespace: pod.Namespace,
		cri.LabelPodUID:       string(pod.UID),
	}
}

// linuxSandbox compiles the Linux part of a sandbox. The sandbox is privileged if one of the
// pod's containers is, because runtimes require it.
func linuxSandbox(in Input, col *collector) *runtimeapi.LinuxPodSandboxConfig {
	pod := in.Pod
	sec := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(in, Regular, ""),
		Privileged:       anyPrivileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	lx := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: in.Node.CgroupParent, SecurityContext: sec,
		Resources: PodResources(in), Overhead: Overhead(in),
	}
	lx.Sysctls = sysctls(in)
	sc := pod.Spec.SecurityContext
	// Without a security context, the sandbox process runs with the runtime's defaults.
	if sc == nil {
		return lx
	}
	if sc.RunAsUser != nil {
		sec.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
	}
	if sc.RunAsGroup != nil {
		sec.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
	}
	sec.SupplementalGroups = supplementalGroups(in, sc)
	sec.SupplementalGroupsPolicy = groupsPolicy(sc, col)
	sec.SelinuxOptions = selinux(sc.SELinuxOptions)
	return lx
}

// anyPrivileged reports whether any container of any kind is privileged.
func anyPrivileged(pod *v1.Pod) bool {
	privileged := func(sc *v1.SecurityContext) bool { return sc != nil && isTrue(sc.Privileged) }
	for i := range pod.Spec.InitContainers {
		if privileged(pod.Spec.InitContainers[i].SecurityContext) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if privileged(pod.Spec.Containers[i].SecurityContext) {
			return true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if privileged(pod.Spec.EphemeralContainers[i].SecurityContext) {
			return true
		}
	}
	return false
}

// namespaces returns the namespaces that a container shares with its pod, the node or another
// container.
func namespaces(in Input, g Group, target string) *runtimeapi.NamespaceOption {
	pod := in.Pod
	// The other fields keep their zero value, POD: the namespace of the pod.
	opt := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		opt.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		opt.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	// Ordered: a target for an ephemeral container only matters if the pod does not share a
	// process namespace.
	case pod.Spec.HostPID:
		opt.Pid = runtimeapi.NamespaceMode_NODE
	case g == Ephemeral && target != "":
		opt.Pid, opt.TargetId = runtimeapi.NamespaceMode_TARGET, target
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		opt.Pid = runtimeapi.NamespaceMode_POD
	}
	if h := pod.Spec.HostUsers; h != nil && !*h && in.UserNamespace != nil {
		// UIDs and GIDs get separate messages, since the caller may modify them.
		ids := func() []*runtimeapi.IDMapping {
			return []*runtimeapi.IDMapping{{HostId: in.UserNamespace.First, Length: in.UserNamespace.Length}}
		}
		opt.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}
	}
	return opt
}

// portMappings returns the ports of the regular containers without duplicates, including those
// without a host port, which runtimes ignore. Ports of other containers are left out, as in the
// kubelet.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		seen := map[string]bool{}
		for _, p := range c.Ports {
			// A name is unique in a container, so it identifies a port. Ports without a name are
			// compared by all their fields.
			key := "name:" + p.Name
			if p.Name == "" {
				family := "any"
				if p.HostIP != "" {
					family = "v4"
					if strings.Contains(p.HostIP, ":") {
						family = "v6"
					}
				}
				key = strings.Join([]string{
					family, protocol(p.Protocol).String(), p.HostIP,
					strconv.Itoa(int(p.ContainerPort)), strconv.Itoa(int(p.HostPort)),
				}, "-")
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	return out
}

// protocol converts a protocol to the CRI's; TCP is the default.
func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
