package e2e_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/testprogram"
)

var (
	hollowNodes = flag.Int("hollow.nodes", 10, "how many hollow nodes there are")
	hollowPods  = flag.Int("hollow.pods", 100, "how many pods are scheduled to them")
	hollowRest  = flag.Duration("hollow.rest", 0, "how long they are measured at rest; they are not")
)

// A scheduler spreads pods over nodes without machines, which report them as running; a
// pod that is deleted is replaced.
func TestHollow(t *testing.T) {
	dir := t.TempDir()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Program: program(t, "cluster"), Dir: dir,
		Controllers: []string{"--kube-api-qps=500", "--kube-api-burst=1000"}, // the test is about nodes
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	admin, err := cp.Kubeconfig("hollow", "hollow", "system:masters", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hollow")
	if err := testprogram.Compile(t.Context(), "..", path, "./examples/hollow"); err != nil {
		t.Fatal(err)
	}
	log := &testprogram.Output{}
	cmd := exec.Command(path, "--kubeconfig", admin, "--nodes", strconv.Itoa(*hollowNodes), "--dir", filepath.Join(dir, "nodes"), "--label", "hollow=true", "-v")
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the nodes said:\n%s", tail(log.String(), 40))
		}
	})
	h := &hollows{t: t, cp: cp, pid: cmd.Process.Pid}
	h.until("all nodes are ready", func() error {
		var list v1.NodeList
		if err := h.get("/api/v1/nodes?labelSelector=hollow%3Dtrue", &list); err != nil {
			return err
		}
		n := 0
		for _, o := range list.Items {
			for _, c := range o.Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
					n++
				}
			}
		}
		return want(n, *hollowNodes)
	})
	up := time.Since(began)

	cpu := h.cpu()
	began = time.Now()
	apply := cp.Kubectl(t.Context(), "apply", "-f", "-")
	apply.Stdin = strings.NewReader(fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: %d,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {
containers: [{name: c, image: "registry.example/web:1", command: [/usr/sbin/web], resources: {requests: {cpu: 20m, memory: 64Mi}}}]}}}}`, *hollowPods))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
	h.until("all pods run", func() error { return want(h.running(), *hollowPods) })
	took := time.Since(began)
	t.Logf("%d nodes ready after %.1f s; %d pods scheduled and running after %.1f s: %.0f calls a second to the API server, %.1f s CPU of all nodes",
		*hollowNodes, up.Seconds(), *hollowPods, took.Seconds(), float64(h.calls(began))/took.Seconds(), (h.cpu() - cpu).Seconds())

	if *hollowRest > 0 {
		time.Sleep(10 * time.Second) // what follows a start is not the rest
		cpu, began = h.cpu(), time.Now()
		time.Sleep(*hollowRest)
		rest := time.Since(began).Seconds()
		t.Logf("at rest: %.2f MB resident a node, %.3f cores, %.1f calls a second to the API server",
			float64(h.resident())/1e6/float64(*hollowNodes), (h.cpu()-cpu).Seconds()/rest, float64(h.calls(began))/rest)
	}

	if out, err := cp.Kubectl(t.Context(), "delete", "pods", "-l", "app=web", "--wait=false").CombinedOutput(); err != nil {
		t.Fatalf("delete: %v: %s", err, out)
	}
	h.until("all pods are replaced", func() error { return want(h.running(), *hollowPods) })
}

func want(got, want int) error {
	if got != want {
		return fmt.Errorf("%d of %d", got, want)
	}
	return nil
}

// hollows are nodes of one process.
type hollows struct {
	t   *testing.T
	cp  *controlplane.ControlPlane
	pid int
}

func (h *hollows) get(path string, out any) error {
	return h.cp.Do(h.t.Context(), http.MethodGet, path, nil, out)
}

func (h *hollows) until(what string, ask func() error) {
	h.t.Helper()
	for end := time.Now().Add(2 * testTimeout); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s: not within %v: %v", what, 2*testTimeout, err)
		}
	}
}

// running counts the pods that run and are to go on.
func (h *hollows) running() int {
	var list v1.PodList
	if err := h.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb&resourceVersion=0", &list); err != nil {
		return -1
	}
	n := 0
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			n++
		}
	}
	return n
}

// calls counts what the nodes have asked the API server since a time.
func (h *hollows) calls(since time.Time) int {
	h.t.Helper()
	calls, err := h.cp.Calls(since)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(calls)
}

func (h *hollows) cpu() time.Duration {
	h.t.Helper()
	d, err := cpuOf(h.pid)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *hollows) resident() int {
	h.t.Helper()
	b, err := residentOf(h.pid)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}
