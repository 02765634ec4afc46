//go:build !race

package hostile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
)

var lives = flag.Int("lives", 100, "updates, restarts, failed pulls, pods and requests in the tests of what agents live through; 5000 takes long")

// A pod's manifest is edited again and again: of one pod that stays the same,
// and of one that each edit makes another.
func TestUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const each = 20
	m := newMachine(t)
	m.start()
	m.placeBystanders()
	manifest := func(name, more string, n int) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, annotations: {edit: "%d"}%s}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "localhost/app:1", args: [sleep, forever]}]}
`, name, n, more)
	}
	m.lives(*lives/each, func(round int) {
		for i := range each {
			n := round*each + i
			m.write("manifests/same.yaml", manifest("same", ", uid: one-and-the-same", n))
			m.write("manifests/other.yaml", manifest("other", "", n))
			m.until("the edits are in effect", func() bool { return m.runsEdit("same", n) && m.runsEdit("other", n) })
		}
	})
	m.stop()
}

// runsEdit reports whether a pod runs as of that edit.
func (m *machine) runsEdit(name string, n int) bool {
	p, err := m.api.Pod(m.t.Context(), "default", name+"-node")
	return err == nil && p.Annotations["edit"] == fmt.Sprint(n) && p.Status.Phase == v1.PodRunning &&
		len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
}

// Containers end as soon as they begin.
func TestRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const each, pods = 100, 40
	m := newMachine(t)
	m.configure("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n")
	var starts atomic.Int64
	m.lies(func(method string, _, _ any) error {
		if method == "StartContainer" {
			starts.Add(1)
		}
		return nil
	})
	m.start()
	m.placeBystanders()
	var b strings.Builder
	for i := range pods {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: crashes-%d, namespace: default}\n"+
			"spec: {containers: [{name: c, image: \"localhost/app:1\", args: [exit, \"1\"]}]}\n", i)
	}
	m.write("manifests/crashes.yaml", b.String())
	m.lives(*lives/each, func(int) {
		want := starts.Load() + each
		m.until("restarts", func() bool { return starts.Load() >= want })
	})
	m.stop()
}

// Images that are not there are asked for, each under a name of its own.
func TestFailingPulls(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const each = 50
	m := newMachine(t)
	m.configure("registryPullQPS: 0\nserializeImagePulls: false\n")
	m.lies(func(method string, _, _ any) error {
		if method == "PullImage" {
			return errors.New(strings.Repeat("no such image ", 1000))
		}
		return nil
	})
	m.start()
	m.placeBystanders()
	m.lives(*lives/each, func(n int) {
		var b strings.Builder
		for i := range each {
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d-%d, namespace: default}\n"+
				"spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: \"registry.example/none-%d-%d:1\"}]}\n", n, i, n, i)
		}
		m.write("manifests/pulls.yaml", b.String())
		m.until("the pulls have failed", func() bool { return m.waiting("ErrImagePull", "ImagePullBackOff") == each })
		m.must(os.Remove(m.path("manifests", "pulls.yaml")))
		m.until("the pods are gone", func() bool { return m.phases() == phases{"Running": crashers + 1}.String() })
	})
	m.stop()
}

// waiting is how many containers wait for one of the reasons.
func (m *machine) waiting(reasons ...string) (n int) {
	m.t.Helper()
	pods, err := m.api.Pods(m.t.Context())
	m.must(err)
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			for _, r := range reasons {
				if c.State.Waiting != nil && c.State.Waiting.Reason == r {
					n++
				}
			}
		}
	}
	return n
}
