package podspec

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSandboxIdentity(t *testing.T) {
	in := input(t, "{}")
	in.Pod.Labels = map[string]string{"app": "web", "io.kubernetes.pod.name": "forged"}
	in.Pod.Annotations = map[string]string{"note": "x"}
	plan, err := Sandbox(in, 3)
	if err != nil {
		t.Fatal(err)
	}
	conf := plan.Config
	if m := conf.Metadata; m.Name != "web" || m.Namespace != "prod" || m.Uid != "u1" || m.Attempt != 3 {
		t.Errorf("metadata = %v, want prod/web, u1, attempt 3", m)
	}
	if want := "/var/log/pods/prod_web_u1"; conf.LogDirectory != want {
		t.Errorf("log directory = %q, want %q", conf.LogDirectory, want)
	}
	labels := map[string]string{
		"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "prod", "io.kubernetes.pod.uid": "u1", "app": "web",
	}
	if !maps.Equal(conf.Labels, labels) {
		t.Errorf("labels = %v, want %v", conf.Labels, labels)
	}
	if !maps.Equal(conf.Annotations, in.Pod.Annotations) {
		t.Errorf("annotations = %v, want %v", conf.Annotations, in.Pod.Annotations)
	}
}

func TestNamespaces(t *testing.T) {
	show := func(o *runtimeapi.NamespaceOption) string {
		return strings.ToLower(fmt.Sprintf("net %v pid %v ipc %v", o.Network, o.Pid, o.Ipc))
	}
	for _, tc := range []struct{ name, spec, want string }{
		{"none shared", "", "net pod pid container ipc pod"},
		{"host network", "hostNetwork: true", "net node pid container ipc pod"},
		{"host PIDs", "hostPID: true", "net pod pid node ipc pod"},
		{"host IPC", "hostIPC: true", "net pod pid container ipc node"},
		{"all of the host's", "hostNetwork: true, hostPID: true, hostIPC: true", "net node pid node ipc node"},
		{"PIDs of the pod", "shareProcessNamespace: true", "net pod pid pod ipc pod"},
		{"PIDs not of the pod", "shareProcessNamespace: false", "net pod pid container ipc pod"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{"+strings.TrimPrefix(tc.spec+", containers: [{name: app, image: i}]}", ", "))
			if got := show(sandbox(t, in).Linux.SecurityContext.NamespaceOptions); got != tc.want {
				t.Errorf("sandbox: %s, want %s", got, tc.want)
			}
			if got := show(compile(t, in, "app").Linux.SecurityContext.NamespaceOptions); got != tc.want {
				t.Errorf("container: %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTargetNamespace(t *testing.T) {
	const ephemeral = "ephemeralContainers: [{name: debug, image: i, targetContainerName: app}], containers: [{name: app, image: i}]"
	for _, tc := range []struct {
		name, spec, container, target string
		want                          runtimeapi.NamespaceMode
		wantTarget                    string
	}{
		{"of the target", "", "debug", "c1", runtimeapi.NamespaceMode_TARGET, "c1"},
		{"no target", "", "debug", "", runtimeapi.NamespaceMode_CONTAINER, ""},
		{"the host's has all", "hostPID: true, ", "debug", "c1", runtimeapi.NamespaceMode_NODE, ""},
		{"only of an ephemeral container", "", "app", "c1", runtimeapi.NamespaceMode_CONTAINER, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := Container(input(t, "{"+tc.spec+ephemeral+"}"), tc.container, ContainerOptions{TargetID: tc.target})
			if err != nil {
				t.Fatal(err)
			}
			if o := plan.Config.Linux.SecurityContext.NamespaceOptions; o.Pid != tc.want || o.TargetId != tc.wantTarget {
				t.Errorf("pid = %v of %q, want %v of %q", o.Pid, o.TargetId, tc.want, tc.wantTarget)
			}
		})
	}
}

func TestPortMappings(t *testing.T) {
	for _, tc := range []struct{ name, spec, want string }{
		{"none", "containers: [{name: a, image: i}]", ""},
		{"one", "containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 8080, hostIP: 192.0.2.1}]}]", "TCP 192.0.2.1:8080->80"},
		{"without a port of the host", "containers: [{name: a, image: i, ports: [{containerPort: 80}]}]", "TCP :0->80"},
		{"protocols", "containers: [{name: a, image: i, ports: [{containerPort: 1, protocol: UDP}, {containerPort: 1, protocol: SCTP}, {containerPort: 1, protocol: TCP}]}]", "UDP :0->1, SCTP :0->1, TCP :0->1"},
		{"regular containers only", "initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 1}]}], containers: [{name: a, image: i, ports: [{containerPort: 2}]}]", "TCP :0->2"},
		{"the same name twice", "containers: [{name: a, image: i, ports: [{name: http, containerPort: 80}, {name: http, containerPort: 81}]}]", "TCP :0->80"},
		{"the same port twice", "containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 1}, {containerPort: 80, hostPort: 1}]}]", "TCP :1->80"},
		{"the same port twice, the protocol named once", "containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 1}, {containerPort: 80, hostPort: 1, protocol: TCP}]}]", "TCP :1->80"},
		{"two names of a port", "containers: [{name: a, image: i, ports: [{name: x, containerPort: 80}, {name: y, containerPort: 80}]}]", "TCP :0->80, TCP :0->80"},
		{"two ports of the host", "containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 1}, {containerPort: 80, hostPort: 2}]}]", "TCP :1->80, TCP :2->80"},
		{"two addresses of the host", "containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 1, hostIP: 0.0.0.0}, {containerPort: 80, hostPort: 1, hostIP: '::'}]}]", "TCP 0.0.0.0:1->80, TCP :::1->80"},
		{"each container has its own", "containers: [{name: a, image: i, ports: [{name: http, containerPort: 80}]}, {name: b, image: i, ports: [{name: http, containerPort: 80}]}]", "TCP :0->80, TCP :0->80"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, m := range sandbox(t, input(t, "{"+tc.spec+"}")).PortMappings {
				got = append(got, fmt.Sprintf("%v %s:%d->%d", m.Protocol, m.HostIp, m.HostPort, m.ContainerPort))
			}
			if got := strings.Join(got, ", "); got != tc.want {
				t.Errorf("ports = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestSysctls(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		{"kernel.shm_rmid_forced", "kernel.shm_rmid_forced"},
		{"net/ipv4/tcp_syncookies", "net.ipv4.tcp_syncookies"},
		{"net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"},
		{"net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"},
		{"kernel", "kernel"},
	} {
		in := input(t, "{securityContext: {sysctls: [{name: "+tc.name+", value: '1'}, {name: net.ipv4.tcp_rmem, value: 1 2 3}]}}")
		want := map[string]string{tc.want: "1", "net.ipv4.tcp_rmem": "1 2 3"}
		if got := sandbox(t, in).Linux.Sysctls; !maps.Equal(got, want) {
			t.Errorf("sysctls = %v, want %v", got, want)
		}
	}
}

// The node's default sysctls apply in the pod's own namespaces, unless the pod sets them.
func TestDefaultSysctls(t *testing.T) {
	defaults := map[string]string{
		"net/core/somaxconn": "1", "net.ipv4.ip_forward": "0", "kernel.shmall": "2", "kernel.sem": "3", "fs.mqueue.msg_max": "4",
		"kernel.domainname": "d", "user.max_user_namespaces": "5", "vm.swappiness": "6",
	}
	ipc := map[string]string{"kernel.shmall": "2", "kernel.sem": "3", "fs.mqueue.msg_max": "4"}
	net := map[string]string{"net.core.somaxconn": "1", "net.ipv4.ip_forward": "0", "kernel.domainname": "d"}
	for _, tc := range []struct {
		spec string
		want []map[string]string
	}{
		{"{}", []map[string]string{ipc, net}},
		{"{hostNetwork: true}", []map[string]string{ipc}},
		{"{hostIPC: true}", []map[string]string{net}},
		{"{hostIPC: true, hostNetwork: true}", nil},
		{"{hostUsers: false}", []map[string]string{ipc, net, {"user.max_user_namespaces": "5"}}},
		{"{securityContext: {sysctls: [{name: net/ipv4/ip_forward, value: '1'}]}}", []map[string]string{ipc, net, {"net.ipv4.ip_forward": "1"}}},
		{"{hostNetwork: true, hostIPC: true, securityContext: {sysctls: [{name: kernel.sem, value: x}]}}", []map[string]string{{"kernel.sem": "x"}}},
	} {
		in := input(t, tc.spec)
		in.Node.DefaultSysctls = defaults
		in.Handler.UserNamespaces, in.UserNamespace = true, &IDRange{First: 65536, Length: 65536}
		want := map[string]string{}
		for _, m := range tc.want {
			maps.Copy(want, m)
		}
		if got := sandbox(t, in).Linux.Sysctls; !maps.Equal(got, want) {
			t.Errorf("%s: sysctls %v, want %v", tc.spec, got, want)
		}
	}
}

func TestSandboxSecurity(t *testing.T) {
	in := input(t, `{securityContext: {
		runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000, 5000], supplementalGroupsPolicy: Strict,
		seccompProfile: {type: Unconfined}, seLinuxOptions: {level: s0:c1}}}`)
	in.Node.CgroupParent = "/kubepods/podu1"
	if _, err := Sandbox(in, 0); text(err) != "spec.securityContext.supplementalGroupsPolicy: Strict is not supported by the runtime: want Merge" {
		t.Errorf("on a runtime without the feature: %v", err)
	}
	in.Handler.SupplementalGroupsPolicy = true
	lx := sandbox(t, in).Linux
	sec := lx.SecurityContext
	if sec.RunAsUser.GetValue() != 1000 || sec.RunAsGroup.GetValue() != 2000 || sec.SelinuxOptions.GetLevel() != "s0:c1" {
		t.Errorf("runs as %v:%v, SELinux %v; want 1000:2000, s0:c1", sec.RunAsUser, sec.RunAsGroup, sec.SelinuxOptions)
	}
	if got := fmt.Sprint(sec.SupplementalGroups, sec.SupplementalGroupsPolicy); got != "[3000 4000 5000] Strict" {
		t.Errorf("groups = %s, want [3000 4000 5000] Strict", got)
	}
	if got := sec.Seccomp.GetProfileType(); got != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("seccomp = %v, want RuntimeDefault whatever the pod has", got)
	}
	if lx.CgroupParent != "/kubepods/podu1" {
		t.Errorf("cgroup parent = %q, want the node's", lx.CgroupParent)
	}
}

func TestSandboxPrivileged(t *testing.T) {
	for _, tc := range []struct {
		spec string
		want bool
	}{
		{"containers: [{name: a, image: i}]", false},
		{"containers: [{name: a, image: i, securityContext: {privileged: false}}]", false},
		{"containers: [{name: a, image: i}, {name: b, image: i, securityContext: {privileged: true}}]", true},
		{"initContainers: [{name: b, image: i, securityContext: {privileged: true}}], containers: [{name: a, image: i}]", true},
		{"ephemeralContainers: [{name: b, image: i, securityContext: {privileged: true}}], containers: [{name: a, image: i}]", true},
	} {
		if got := sandbox(t, input(t, "{"+tc.spec+"}")).Linux.SecurityContext.Privileged; got != tc.want {
			t.Errorf("%s: privileged = %t, want %t", tc.spec, got, tc.want)
		}
	}
}

func TestSandboxTellsEveryProblem(t *testing.T) {
	in := input(t, "{hostname: A.B, hostUsers: false}")
	in.Node.ResolvConf = "nameserver"
	_, err := Sandbox(in, 0)
	var p Problems
	if !errors.As(err, &p) || len(p) != 3 || p.Reason() != ReasonCreateSandbox {
		t.Fatalf("problems = %v, want three of reason %s", err, ReasonCreateSandbox)
	}
	if got, want := p[0].Path+" "+p[1].Path+" "+p[2].Path, "spec.hostname spec.dnsPolicy spec.hostUsers"; got != want {
		t.Errorf("paths = %s, want %s", got, want)
	}
	if Problems(nil).Reason() != "" {
		t.Error("no problems have a reason")
	}
}

func TestLogDirectory(t *testing.T) {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "a", "b", "c"
	if got, want := LogDirectory("/logs", pod), "/logs/b_a_c"; got != want {
		t.Errorf("log directory = %q, want %q", got, want)
	}
}
