//go:build !race

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// pod is a manifest of a pod "hostile" with one container, and more fields of
// the container.
func pod(more string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: hostile, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]
  containers:
  - name: c
    image: "localhost/app:1"
    args: [sleep, forever]
    volumeMounts: [{name: v, mountPath: /v}]
` + more
}

// place has a pod run, which then does its worst.
func (m *machine) place(manifest string) (id string) {
	m.t.Helper()
	m.write("manifests/hostile.yaml", manifest)
	return m.untilRuns("hostile")
}

// refused waits until the manifest of the attack is a problem, that names why.
func refused(word string) func(m *machine) {
	return func(m *machine) {
		m.until("a problem with "+word, func() bool {
			problems, err := m.api.Problems(context.Background())
			m.must(err)
			for _, p := range problems {
				if strings.Contains(p.Field+p.Reason, word) {
					return true
				}
			}
			return false
		})
	}
}

// mine reports whether a call is about the attacker's container or sandbox.
func (m *machine) mine(id string) bool { return m.podOf(id) == "hostile" }

func attacks() []attack {
	return []attack{
		{name: "hosts file of 1 TiB", run: func(m *machine) {
			id := m.place(pod(""))
			m.must(os.Truncate(filepath.Join(m.podDir("hostile"), "etc-hosts"), 1<<40))
			m.rt.Kill(id)
		}, after: func(m *machine) { m.untilRuns("hostile") }},
		{name: "termination message is a pipe", run: func(m *machine) { m.message(func(path string) error { return syscall.Mkfifo(path, 0o600) }) }},
		{name: "termination message is a link to a secret", run: func(m *machine) {
			m.write("secret", "kubeconfig-key")
			m.message(func(path string) error { return os.Symlink(m.path("secret"), path) })
		}, after: func(m *machine) {
			p, err := m.api.Pod(context.Background(), "default", "hostile-node")
			m.must(err)
			if strings.Contains(p.Status.String(), "kubeconfig-key") {
				m.t.Error("the secret is in the pod's status")
			}
		}},
		{name: "log is a pipe", run: func(m *machine) { m.log1(func(path string) error { return syscall.Mkfifo(path, 0o600) }) }},
		{name: "log of 1 TiB", run: func(m *machine) {
			m.log1(func(path string) error {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					return err
				}
				return os.Truncate(path, 1<<40)
			})
		}},
		{name: "variables that double each other", run: func(m *machine) {
			var b strings.Builder
			fmt.Fprintf(&b, "    env:\n    - {name: V0, value: %q}\n", strings.Repeat("x", 540))
			for i := range 28 {
				fmt.Fprintf(&b, "    - {name: V%d, value: \"$(V%d)$(V%d)\"}\n", i+1, i, i)
			}
			m.write("manifests/hostile.yaml", pod(b.String()))
		}},
		{name: "manifest of aliases", run: func(m *machine) {
			var b strings.Builder
			fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: hostile\n  annotations:\n    a0: &a %s\n", strings.Repeat("x", 100_000))
			for i := range 5_000 {
				fmt.Fprintf(&b, "    a%d: *a\n", i+1)
			}
			b.WriteString("spec: {containers: [{name: c, image: \"localhost/app:1\"}]}\n")
			m.write("manifests/hostile.yaml", b.String())
		}, after: refused("alias")},
		{name: "manifest of 100,000 wrong documents", run: func(m *machine) {
			m.write("manifests/hostile.yaml", strings.Repeat("a\n---\n", 80_000))
			refused("")(m)
			m.write("manifests/hostile.yaml", strings.Repeat("b\n---\n", 80_000)) // compared with what it was
		}, after: refused("")},
		{name: "manifest of 20,000 levels", run: func(m *machine) {
			m.write("manifests/hostile.yaml", "a: "+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000))
		}, after: refused("")},
		{name: "quantity that takes for ever", run: func(m *machine) {
			m.write("manifests/hostile.yaml", pod("    resources: {requests: {cpu: \"1e-2000000000\"}}\n"))
		}, after: refused("")},
		{name: "manifest is a pipe", run: func(m *machine) { m.must(syscall.Mkfifo(m.path("manifests", "hostile.yaml"), 0o600)) }},
		{name: "UID that is a path", run: func(m *machine) {
			m.write("manifests/hostile.yaml", strings.Replace(pod(""), "name: hostile", "name: hostile, uid: ../../escaped", 1))
		}, after: func(m *machine) {
			if _, err := os.Stat(m.path("escaped")); err == nil {
				m.t.Error("a directory was made outside")
			}
			refused("uid")(m)
		}},
		{name: "33 probes that hang", run: func(m *machine) {
			m.lies(m.hangExecs())
			var b strings.Builder
			b.WriteString(strings.Replace(pod("    livenessProbe: {exec: {command: [a]}, timeoutSeconds: 3600, periodSeconds: 1}\n"), "sleep, forever", "sleep, forever", 1))
			for i := range 33 {
				fmt.Fprintf(&b, "  - {name: c%d, image: \"localhost/app:1\", args: [sleep, forever], livenessProbe: {exec: {command: [a]}, timeoutSeconds: 3600, periodSeconds: 1}}\n", i)
			}
			m.place(b.String())
		}, lasts: 12 * time.Second},
		{name: "probes that print 16 MiB", run: func(m *machine) {
			flood := bytes.Repeat([]byte("x"), 15<<20)
			m.lies(func(method string, req, answer any) error {
				if q, ok := req.(*runtimeapi.ExecSyncRequest); ok && m.mine(q.GetContainerId()) {
					answer.(*runtimeapi.ExecSyncResponse).Stdout = flood
				}
				return nil
			})
			var b strings.Builder
			b.WriteString(pod(""))
			for i := range 32 {
				fmt.Fprintf(&b, "  - {name: c%d, image: \"localhost/app:1\", args: [sleep, forever], livenessProbe: {exec: {command: [a]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1000}}\n", i)
			}
			m.place(b.String())
		}},
		{name: "containers that are never seen", run: func(m *machine) {
			m.lies(func(_ string, _, answer any) error {
				if list, ok := answer.(*runtimeapi.ListContainersResponse); ok {
					list.Containers = without(list.Containers)
				}
				return nil
			})
			m.write("manifests/hostile.yaml", pod(""))
		}, after: func(m *machine) {
			if n := m.copies(); n > 20 {
				m.t.Errorf("%d copies of one container were made", n)
			}
		}},
		{name: "sandboxes that are never seen", run: func(m *machine) {
			m.lies(func(_ string, _, answer any) error {
				if list, ok := answer.(*runtimeapi.ListPodSandboxResponse); ok {
					list.Items = withoutSandboxes(list.Items)
				}
				return nil
			})
			m.write("manifests/hostile.yaml", pod(""))
		}, after: func(m *machine) {
			list, err := m.rt.ListPodSandbox(context.Background(), nil)
			m.must(err)
			if n := len(list) - len(withoutSandboxes(list)); n > 20 {
				m.t.Errorf("%d sandboxes of one pod were made", n)
			}
		}},
		{name: "volume 5,000 deep", run: func(m *machine) {
			m.must(os.Mkdir(m.path("deep"), 0o700))
			m.must(deep(m.path("deep"), 5_000))
			m.place(pod(""))
			m.must(os.Rename(m.path("deep"), filepath.Join(m.podDir("hostile"), "volumes", "kubernetes.io~empty-dir", "v", "deep"))) // see below
			m.must(os.Remove(m.path("manifests", "hostile.yaml")))
		}, after: func(m *machine) { m.untilGone() }, lasts: 10 * time.Second},
		{name: "volume of 100,000 files", run: func(m *machine) {
			m.must(os.Mkdir(m.path("many"), 0o700))
			for i := range 100_000 {
				m.must(syscall.Mknod(filepath.Join(m.path("many"), fmt.Sprintf("%0100d", i)), syscall.S_IFREG|0o600, 0))
			}
			m.place(pod(""))
			// They are there at once: a volume that is filled for seconds is over its
			// limit before it is full, and its pod evicted.
			m.must(os.Rename(m.path("many"), filepath.Join(m.podDir("hostile"), "volumes", "kubernetes.io~empty-dir", "v", "many")))
			m.must(os.Remove(m.path("manifests", "hostile.yaml")))
		}, after: func(m *machine) { m.untilGone() }, lasts: 10 * time.Second},
		{name: "strangers at the agent's own socket", run: func(m *machine) {
			for range 200 {
				go func() { _, _ = local.NewClient(m.path("root", "agent.sock")).Pods(context.Background()) }()
			}
		}},
	}
}

// message has a container end with a termination message of make's.
func (m *machine) message(make func(path string) error) {
	m.t.Helper()
	id := m.place(pod("    terminationMessagePath: /dev/termination-log\n"))
	found, err := filepath.Glob(filepath.Join(m.podDir("hostile"), "containers", "c", "*"))
	m.must(err)
	if len(found) == 0 {
		m.t.Fatal("no termination message file was made")
	}
	for _, path := range found {
		m.must(os.Remove(path))
		m.must(make(path))
	}
	m.rt.Kill(id)
}

// log1 has a container end whose log is make's.
func (m *machine) log1(make func(path string) error) {
	m.t.Helper()
	id := m.place(pod("    terminationMessagePolicy: FallbackToLogsOnError\n"))
	found, err := filepath.Glob(m.path("logs", "default_hostile*", "c", "*.log"))
	m.must(err)
	if len(found) == 0 {
		m.t.Fatal("there is no log")
	}
	for _, path := range found {
		m.must(os.Remove(path))
		m.must(make(path))
	}
	m.rt.Kill(id)
}

// hangExecs has every command in the attacker's containers hang.
func (m *machine) hangExecs() func(string, any, any) error {
	over := make(chan struct{})
	m.t.Cleanup(func() { close(over) })
	return func(_ string, req, _ any) error {
		if q, ok := req.(*runtimeapi.ExecSyncRequest); ok && m.mine(q.GetContainerId()) {
			<-over
		}
		return nil
	}
}

func isMine(labels map[string]string) bool { return labels["io.kubernetes.pod.name"] == "hostile-node" }

func without(all []*runtimeapi.Container) []*runtimeapi.Container {
	var out []*runtimeapi.Container
	for _, c := range all {
		if !isMine(c.GetLabels()) {
			out = append(out, c)
		}
	}
	return out
}

func withoutSandboxes(all []*runtimeapi.PodSandbox) []*runtimeapi.PodSandbox {
	var out []*runtimeapi.PodSandbox
	for _, s := range all {
		if !isMine(s.GetLabels()) {
			out = append(out, s)
		}
	}
	return out
}

// copies is how many containers of the attacker there are.
func (m *machine) copies() int {
	list, err := m.rt.ListContainers(context.Background(), nil)
	m.must(err)
	return len(list) - len(without(list))
}

// deep makes a chain of directories.
func deep(dir string, levels int) error {
	at, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	for range levels {
		if err != nil {
			return err
		}
		if err = syscall.Mkdirat(at, "d", 0o700); err != nil {
			break
		}
		var next int
		next, err = syscall.Openat(at, "d", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		_ = syscall.Close(at)
		at = next
	}
	_ = syscall.Close(at)
	return err
}

// untilGone waits until nothing is left of the attacker's pod on the disk.
func (m *machine) untilGone() {
	m.t.Helper()
	m.until("the pod's directory is removed", func() bool {
		pods, err := os.ReadDir(m.path("root", "pods"))
		m.must(err)
		return len(pods) == crashers+1
	})
}
