package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/node"
)

// insidePod is a pod whose one container looks around, says what it sees, and
// ends. spec and container are flow YAML without the outer braces.
type insidePod struct {
	name, spec, container string
	steps                 []string // of the test image
	want                  []string // lines of the log
	wantNot               []string
	message               string       // that the container ended with
	fails                 bool         // the pod does not succeed
	cannot                func() error // says why it is left out here
}

func (p insidePod) manifest() string {
	steps := make([]string, len(p.steps))
	for i, s := range p.steps {
		steps[i] = "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	join := func(parts ...string) string {
		return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
	}
	container := join(fmt.Sprintf("name: c, image: '%s', args: [%s]", sampleimage.Testbox, strings.Join(steps, ", ")), p.container)
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {tier: web}, annotations: {note: 'a \"b\"'}}\nspec: {%s}\n",
		p.name, join("restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{"+container+"}]", p.spec))
}

// caps are the values of /proc/PID/status for one capability, for those of a
// container by default, and for all that there are.
const (
	capNetAdmin = 1 << 12
	capDefault  = 0xa80425fb
)

// What a container was asked to get it sees from inside, on a real runtime.
func TestSeenFromInside(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	host := t.TempDir()
	l.must(os.WriteFile(filepath.Join(host, "file"), []byte("of the node\n"), 0o644))
	l.must(os.Chmod(host, 0o755)) //nolint:gosec // containers of any user read it
	f, err := os.OpenFile(l.config(), os.O_APPEND|os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteString("clusterDNS: [10.96.0.10]\nclusterDomain: cluster.test\n")
	l.must(err)
	l.must(f.Close())
	l.write("data.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {color: blue, size: large, "not=valid": x}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
`)
	volumes := fmt.Sprintf("volumes: [{name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}, {name: h, hostPath: {path: %s}}, {name: i, image: {reference: '%s'}}]",
		host, sampleimage.Testbox)
	status := []string{"cat", "/proc/self/status"}
	pods := []insidePod{
		{
			name: "env", steps: []string{"env", "."},
			container: `env: [
				{name: A, value: one}, {name: B, value: '$(A) two $$(A) $(NONE)'}, {name: EMPTY},
				{name: COLOR, valueFrom: {configMapKeyRef: {name: cm, key: color}}},
				{name: PASSWORD, valueFrom: {secretKeyRef: {name: s, key: password}}},
				{name: MAYBE, valueFrom: {secretKeyRef: {name: none, key: x, optional: true}}},
				{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
				{name: TIER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}},
				{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
				{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}},
				{name: MEMORY, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}],
				envFrom: [{configMapRef: {name: cm}}, {prefix: P_, secretRef: {name: s}}],
				resources: {limits: {cpu: 250m}, requests: {memory: 7Mi}}`,
			want: []string{
				"A=one", "B=one two $(A) $(NONE)", "EMPTY=", "COLOR=blue", "PASSWORD=hunter2", "POD=env-lab", "TIER=web", "NODE=lab",
				"CPU=250", "MEMORY=7", "color=blue", "size=large", "P_password=hunter2",
			},
			wantNot: []string{"MAYBE=", "not=valid=x"},
		},
		{
			name: "env-of-file", steps: []string{"env", "."},
			spec: volumes + ", initContainers: [{name: i, image: '" + sampleimage.Testbox +
				"', args: [write, /e/vars, \"# what it found out\\nCITY='New York'\\n\"], volumeMounts: [{name: e, mountPath: /e}]}]",
			container: `env: [{name: TOWN, valueFrom: {fileKeyRef: {volumeName: e, path: vars, key: CITY}}},
				{name: NONE, valueFrom: {fileKeyRef: {volumeName: e, path: none, key: X, optional: true}}}]`,
			want: []string{"TOWN=New York"}, wantNot: []string{"NONE="},
		},
		{
			name: "args", steps: []string{"out", "$(A)-$(NONE)-$$(A)", "cat", "version"},
			container: "workingDir: /proc, env: [{name: A, value: x}]",
			want:      []string{"x-$(NONE)-$(A)"},
		},
		{
			name: "user", steps: append([]string{"id"}, status...),
			spec: "securityContext: {runAsUser: 1001, runAsGroup: 1002, fsGroup: 1003, supplementalGroups: [1004], runAsNonRoot: true}",
			want: []string{"1001 1002", "Groups:\t1002 1003 1004 "},
		},
		{
			name: "user-of-container", steps: []string{"id"}, spec: "securityContext: {runAsUser: 1001}",
			container: "securityContext: {runAsUser: 2001, runAsGroup: 2002}", want: []string{"2001 2002"},
		},
		{name: "caps", steps: status, want: []string{fmt.Sprintf("CapEff:\t%016x", capDefault)}},
		{
			name: "caps-changed", steps: status, container: "securityContext: {capabilities: {add: [NET_ADMIN], drop: [ALL]}}",
			want: []string{fmt.Sprintf("CapEff:\t%016x", capNetAdmin)},
		},
		{
			name: "no-privileges-more", steps: status, container: "securityContext: {allowPrivilegeEscalation: false}",
			want: []string{"NoNewPrivs:\t1"},
		},
		{name: "privileges-more", steps: status, want: []string{"NoNewPrivs:\t0", "Seccomp:\t0"}},
		{
			name: "seccomp", steps: status, spec: "securityContext: {seccompProfile: {type: RuntimeDefault}}",
			want: []string{"Seccomp:\t2"},
		},
		{
			name: "groups", spec: "securityContext: {runAsUser: 4001, runAsGroup: 4001, supplementalGroups: [4003]}", steps: status,
			want: []string{"Groups:\t4001 4003 4242 "}, // 4242 by the image's /etc/group
		},
		{
			name: "groups-strict", steps: status, want: []string{"Groups:\t4001 4003 "},
			spec: "securityContext: {runAsUser: 4001, runAsGroup: 4001, supplementalGroups: [4003], supplementalGroupsPolicy: Strict}",
		},
		{name: "masked", steps: []string{"ls", "/proc/acpi", "out", "end"}, want: []string{"end"}},
		{
			name: "privileged", steps: status, container: "securityContext: {privileged: true}",
			wantNot: []string{fmt.Sprintf("CapEff:\t%016x", capDefault)},
		},
		{
			name: "runtime-class", spec: "runtimeClassName: bare", container: "securityContext: {privileged: true}",
			steps: []string{"ls", "/dev"}, want: []string{"null"}, wantNot: []string{"kmsg"}, // bare hides the node's devices
		},
		{
			name: "privileged-devices", container: "securityContext: {privileged: true}", steps: []string{"ls", "/dev"}, want: []string{"kmsg"},
		},
		{
			name: "sysctl", steps: []string{"cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "cat", "/proc/sys/kernel/shm_rmid_forced"},
			spec: "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '99'}, {name: kernel.shm_rmid_forced, value: '1'}]}",
			want: []string{"99", "1"},
		},
		{
			name: "oom", steps: []string{"cat", "/proc/self/oom_score_adj"}, want: []string{"1000"},
		},
		{
			name: "hostname", steps: []string{"cat", "/proc/sys/kernel/hostname"}, spec: "hostname: db", want: []string{"db"},
		},
		{
			name: "fqdn", steps: []string{"cat", "/proc/sys/kernel/hostname", "cat", "/etc/hosts"},
			spec: "hostname: db, subdomain: sql, setHostnameAsFQDN: true, hostAliases: [{ip: 192.0.2.9, hostnames: [a.example, b.example]}]",
			want: []string{"db.sql.default.svc.cluster.test", "127.0.0.1\tlocalhost", "192.0.2.9\ta.example\tb.example"},
		},
		{
			name: "dns", steps: []string{"cat", "/etc/resolv.conf"},
			want: []string{"nameserver 10.96.0.10", "options ndots:5"},
		},
		{
			name: "dns-own", steps: []string{"cat", "/etc/resolv.conf"},
			spec: "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.1], searches: [x.example, y.example], options: [{name: ndots, value: '2'}, {name: rotate}]}",
			want: []string{"nameserver 192.0.2.1", "search x.example y.example", "options ndots:2 rotate"},
		},
		{
			name: "empty-dir", spec: volumes + ", initContainers: [{name: i, image: '" + sampleimage.Testbox +
				"', args: [write, /e/file, 'of the init container', write, /m/file, 'in memory'], volumeMounts: [{name: e, mountPath: /e}, {name: m, mountPath: /m}]}]",
			container: "volumeMounts: [{name: e, mountPath: /x}, {name: m, mountPath: /y}]",
			steps:     []string{"cat", "/x/file", "out", "", "cat", "/y/file", "out", ""},
			want:      []string{"of the init container", "in memory"},
		},
		{
			name: "host-path", spec: volumes, container: "volumeMounts: [{name: h, mountPath: /h, readOnly: true, recursiveReadOnly: IfPossible}]",
			steps: []string{"cat", "/h/file"}, want: []string{"of the node"},
		},
		{
			name: "sub-path", spec: volumes, container: "env: [{name: W, value: me}], volumeMounts: [{name: e, mountPath: /x, subPathExpr: a/$(W)}, {name: e, mountPath: /all}]",
			steps: []string{"write", "/x/file", "deep", "cat", "/all/a/me/file", "out", ""}, want: []string{"deep"},
		},
		{
			name: "image-volume", spec: volumes, container: "volumeMounts: [{name: i, mountPath: /img}]",
			steps: []string{"ls", "/img"}, want: []string{"testbox"},
		},
		{name: "host-network", spec: "hostNetwork: true", steps: []string{"ls", "/sys/class/net", "cat", "/proc/sys/kernel/hostname"}, want: []string{nodeHostname(t)}},
		{name: "host-pid", spec: "hostPID: true", steps: []string{"cat", fmt.Sprintf("/proc/%d/comm", os.Getpid())}, want: []string{ownName(t)}},
		{name: "own-pid", steps: status, want: []string{"Pid:\t1"}},
		{name: "shared-pid", spec: "shareProcessNamespace: true", steps: []string{"cat", "/proc/1/comm"}, want: []string{"pause"}},
		{
			name: "own-users", spec: "hostUsers: false, " + volumes, container: "volumeMounts: [{name: e, mountPath: /x}]",
			steps: []string{"cat", "/proc/self/uid_map", "id", "write", "/x/file", "mine", "cat", "/x/file", "out", ""},
			want:  []string{"         0      65536      65536", "0 0", "mine"}, cannot: containerdtest.NoIDMaps,
		},
		{
			name: "proc-mount", spec: "hostUsers: false", container: "securityContext: {procMount: Unmasked}", cannot: containerdtest.NoIDMaps, fails: true,
			steps: []string{"write", "/proc/sys/vm/swappiness", "1"}, want: []string{"testbox: write: open /proc/sys/vm/swappiness: permission denied"},
		},
		{
			name: "proc-mount-default", spec: "hostUsers: false", cannot: containerdtest.NoIDMaps, fails: true,
			steps: []string{"write", "/proc/sys/vm/swappiness", "1"}, want: []string{"testbox: write: open /proc/sys/vm/swappiness: read-only file system"},
		},
		{
			// Stopped by a probe, once it is known to catch the signal.
			name: "stop-signal", spec: "os: {name: linux}", container: "lifecycle: {stopSignal: SIGUSR1}, " +
				"startupProbe: {exec: {command: [/testbox, cat, /ready]}, periodSeconds: 1, failureThreshold: 600, timeoutSeconds: 60}, " +
				"livenessProbe: {exec: {command: [/testbox, cat, /none]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 60}",
			steps: []string{"catch", "USR1", "ignore", "write", "/ready", "", "sleep", "forever"}, want: []string{"got USR1"},
		},
		{
			name: "message", steps: []string{"write", "/dev/termination-log", "all is well"}, message: "all is well",
		},
		{
			name: "message-elsewhere", container: "terminationMessagePath: /tmp/last-words", steps: []string{"write", "/tmp/last-words", "as told"},
			message: "as told",
		},
		{
			name: "message-of-log", container: "terminationMessagePolicy: FallbackToLogsOnError", steps: []string{"out", "what went wrong", "exit", "3"},
			message: "what went wrong\n", want: []string{"what went wrong"}, fails: true,
		},
		{
			name: "huge-pages", container: "resources: {limits: {cpu: 100m, memory: 16Mi, hugepages-2Mi: 4Mi}}", cannot: hugePages(t),
			steps: []string{"cat", "/sys/fs/cgroup/hugetlb.2MB.max"}, want: []string{"4194304"},
		},
		{
			name: "limits", container: "resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 32Mi}}",
			steps: limitFiles(), want: limitValues(),
		},
	}
	pods = slices.DeleteFunc(pods, func(p insidePod) bool {
		if p.cannot == nil {
			return false
		}
		why := p.cannot()
		if why != nil {
			t.Logf("the pod %s is left out: %v", p.name, why)
		}
		return why != nil
	})
	for _, p := range pods {
		l.write(p.name+".yaml", p.manifest())
	}
	// One that must not run.
	l.write("root.yaml", insidePod{name: "root", spec: "securityContext: {runAsNonRoot: true}", steps: []string{"id"}}.manifest())
	l.write("read-only.yaml", insidePod{name: "read-only", container: "securityContext: {readOnlyRootFilesystem: true}", steps: []string{"write", "/file", "x"}}.manifest())
	l.start()
	ended := l.until("all ended", func(now map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p insidePod) bool {
			return now[p.name] == nil || now[p.name].Status.Phase != v1.PodSucceeded && now[p.name].Status.Phase != v1.PodFailed
		}) && now["read-only"] != nil && now["read-only"].Status.Phase == v1.PodFailed
	})
	for _, p := range pods {
		t.Run(p.name, func(t *testing.T) {
			got := l.ask("logs", p.name)
			if ph := ended[p.name].Status.Phase; (ph != v1.PodSucceeded) != p.fails {
				t.Errorf("the pod is %s", ph)
			}
			if end := ended[p.name].Status.ContainerStatuses[0].State.Terminated; end == nil || end.Message != p.message {
				t.Errorf("the container ended with %+v, want the message %q", end, p.message)
			}
			lines := strings.Split(got, "\n")
			for _, w := range p.want {
				if !slices.Contains(lines, w) {
					t.Errorf("no line %q", w)
				}
			}
			for _, w := range p.wantNot {
				if slices.Contains(lines, w) {
					t.Errorf("a line %q", w)
				}
			}
			if t.Failed() {
				t.Logf("it said:\n%s", got)
			}
		})
	}
	if got := l.ask("logs", "read-only"); !strings.Contains(got, "read-only file system") {
		t.Errorf("a write to a read-only root: %q", got)
	}
	if w := l.pods()["root"].Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" {
		t.Errorf("a container that may not run as root: %+v, want it to wait with CreateContainerConfigError", w)
	}
}

// hugePages sees to it that the node has huge pages while the test runs, or
// says why it cannot: what a container may have of them only cgroup v2 shows.
func hugePages(t *testing.T) func() error {
	return func() error {
		controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		if err != nil {
			return err
		}
		if !strings.Contains(string(controllers), "hugetlb") {
			return fmt.Errorf("the controllers of cgroup v2 are %s", controllers)
		}
		const count = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
		before, err := os.ReadFile(count)
		if err != nil {
			return err
		}
		t.Cleanup(func() {
			if err := os.WriteFile(count, before, 0); err != nil {
				t.Errorf("give the huge pages back: %v", err)
			}
		})
		return os.WriteFile(count, []byte("8"), 0)
	}
}

func nodeHostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func ownName(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// limitFiles has the container read its own limits, and limitValues is what
// they are to be, by the cgroups that the machine has.
func limitFiles() []string {
	if node.CgroupV2() {
		return []string{"cat", "/sys/fs/cgroup/cpu.max", "cat", "/sys/fs/cgroup/memory.max", "cat", "/sys/fs/cgroup/memory.oom.group"}
	}
	return []string{
		"cat", "/sys/fs/cgroup/cpu/cpu.shares", "cat", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
		"cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
	}
}

func limitValues() []string {
	if node.CgroupV2() {
		return []string{"50000 100000", "33554432", "1"}
	}
	return []string{"256", "50000", "33554432"}
}
