//go:build !race && linux

package hostile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node"
)

// ownCgroups makes a cgroup for the pods of a test, and returns its name and its directory
// of the processes' controller. It is called before the machine is made: what is below goes
// with the machine's pods.
func ownCgroups(t *testing.T) (name, pids string) {
	t.Helper()
	name = fmt.Sprintf("nodewright-hostile-%d", os.Getpid())
	dirs, pids := []string{"/sys/fs/cgroup/" + name}, "/sys/fs/cgroup/"+name
	if !node.CgroupV2() {
		found, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		dirs, pids = nil, "/sys/fs/cgroup/pids/"+name
		for _, f := range found {
			if d := filepath.Dir(f); filepath.Base(d) != "unified" {
				dirs = append(dirs, filepath.Join(d, name))
			}
		}
	}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Skip(err) // as where cgroups are read-only
		}
	}
	t.Cleanup(func() {
		made, _ := filepath.Glob("/sys/fs/cgroup/*/" + name) // the runtime makes some beside v1's
		for _, d := range append(made, "/sys/fs/cgroup/"+name) {
			var below []string
			_ = filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					below = append(below, path)
				}
				return nil // what vanishes meanwhile need not be removed
			})
			for _, path := range slices.Backward(below) {
				if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			}
		}
	})
	return name, pids
}

// probed is a pod of a real container whose probe is a process each second.
func probed(name string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: "localhost/nodewright/testbox:1"
    imagePullPolicy: Never
    args: [sleep, forever]
    readinessProbe: {exec: {command: [testbox, exit, "0"]}, periodSeconds: 1, timeoutSeconds: 60}
`
}

// untilReady waits until a pod is ready, and returns since when it is.
func (m *machine) untilReady(pod string) (since time.Time) {
	m.t.Helper()
	m.until(pod+" is ready", func() bool {
		p, err := m.api.Pod(m.t.Context(), "default", pod+"-node")
		if err != nil {
			return false
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				since = c.LastTransitionTime.Time
				return true
			}
		}
		return false
	})
	return since
}

// A container that starts processes without end gets as many as its pod may have. A neighbour
// whose probe is a process stays ready, and another pod starts.
func TestForkBombStaysInItsPod(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: runs containers")
	}
	if os.Geteuid() != 0 {
		t.Skip("runs containers: needs root")
	}
	root, pids := ownCgroups(t)
	m := newOwnMachine(t)
	config, err := os.ReadFile(m.path("config.yaml"))
	m.must(err)
	m.write("config.yaml", strings.Replace(string(config), "cgroupsPerQOS: false", "cgroupRoot: /"+root+"\npodPidsLimit: 64", 1))
	m.write("manifests/neighbour.yaml", probed("neighbour"))
	m.start()
	since := m.untilReady("neighbour")
	m.write("manifests/bomb.yaml", `apiVersion: v1
kind: Pod
metadata: {name: bomb, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, args: [`+strings.Repeat("child, ", 1000)+`sleep, forever]}]
`)
	m.until("the kernel refuses a process of the pod", func() bool {
		for _, pattern := range []string{"pod*/pids.events", "pod*/*/pids.events"} { // older kernels count below the limit
			found, err := filepath.Glob(filepath.Join(pids, "kubepods", "besteffort", pattern))
			m.must(err)
			for _, path := range found {
				if b, _ := os.ReadFile(path); strings.HasPrefix(string(b), "max ") && strings.TrimSpace(string(b)) != "max 0" {
					return true
				}
			}
		}
		return false
	})
	m.write("manifests/later.yaml", probed("later"))
	m.untilReady("later")
	if now := m.untilReady("neighbour"); !now.Equal(since) {
		t.Errorf("the neighbour is ready since %v, and was since %v", now, since)
	}
	if peak := m.peak(); peak > maxMemory {
		t.Errorf("peak %d MiB; want at most %d", peak>>20, maxMemory>>20)
	}
	m.stop()
}
