//go:build !race

package hostile

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var churned = flag.Int("churn", 500, "pods that come and go in TestChurn")

// churnedPods are the kinds of pods that come and go, each with its share.
var churnedPods = []string{
	// runs
	"spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: \"localhost/app:1\", args: [sleep, forever]}]}\n",
	// has volumes and is probed
	`spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}, {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]
  containers:
  - name: c
    image: "localhost/app:1"
    args: [sleep, forever]
    volumeMounts: [{name: v, mountPath: /v}, {name: d, mountPath: /d}]
    readinessProbe: {exec: {command: [exit, "0"]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [exit, "0"]}, periodSeconds: 1}
`,
	// begins with another container, and has two
	`spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{name: i, image: "localhost/app:1", args: [exit, "0"]}]
  containers: [{name: c, image: "localhost/app:1", args: [sleep, forever]}, {name: d, image: "localhost/app:1", args: [sleep, forever]}]
`,
	// ends by itself
	"spec: {restartPolicy: Never, containers: [{name: c, image: \"localhost/app:1\", args: [exit, \"0\"]}]}\n",
}

// Pods come and go, a hundred at a time, and leave nothing in the agent.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const atOnce = 100
	ended := atOnce / len(churnedPods)
	m := newMachine(t)
	m.start()
	m.placeBystanders()
	m.lives(*churned/atOnce, func(n int) {
		var b strings.Builder
		for i := range atOnce {
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d-%d, namespace: default}\n%s", n, i, churnedPods[i%len(churnedPods)])
		}
		m.write("manifests/churn.yaml", b.String())
		m.until("the pods run", func() bool {
			return m.phases() == phases{"Running": crashers + 1 + atOnce - ended, "Succeeded": ended}.String()
		})
		m.must(os.Remove(m.path("manifests", "churn.yaml")))
		m.until("the pods are gone", func() bool { return m.phases() == phases{"Running": crashers + 1}.String() })
	})
	m.stop()
}

// phases are how many pods are in each phase.
type phases map[string]int

func (p phases) String() string { return fmt.Sprint(map[string]int(p)) }

// phases are those of the agent's pods.
func (m *machine) phases() string {
	m.t.Helper()
	pods, err := m.api.Pods(m.t.Context())
	m.must(err)
	p := phases{}
	for _, pod := range pods.Items {
		p[string(pod.Status.Phase)]++
	}
	return p.String()
}
