//go:build kubelet

package e2e_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	costPods   = flag.Int("cost.pods", 60, "how many pods are made at once")
	costRounds = flag.Int("cost.rounds", 2, "how often each program runs them")
	costOf     = flag.String("cost.of", kubelet+","+agent, "programs, in this order: of build/bin, or paths of agents to compare")
	costRest   = flag.Duration("cost.rest", 75*time.Second, "how long the pods run before memory counts")
	profile    = flag.String("cost.profile", "", "directory for CPU and heap profiles of the programs, while pods start")
)

// What the agent may cost at 60 pods: calls to the runtime for each pod from its
// creation until it is ready, and resident memory when they have run for a while, in the
// median of a minute. CPU is compared with the kubelet's in the same run: a busy machine
// doubles it for both.
const (
	maxPodCRI   = 7.5 // six for the start, and what a node asks anyhow meanwhile
	maxResident = 30 << 20
)

// The kubelet and the agent run the same pods in turn, on one containerd and one API server.
func TestCost(t *testing.T) {
	programs := strings.Split(*costOf, ",")
	for _, name := range programs {
		program(t, name)
	}
	// All periods are the defaults: each report of the node costs pages of the program.
	n := newNode(t, "maxPods: 250\nenableProfilingHandler: true\n")
	of := time.Duration(0) // the kubelet's CPU
	for range *costRounds {
		for _, name := range programs {
			n.run(name)
			c := n.cost(name, *costPods)
			n.profiles.Wait()
			n.end()
			switch {
			case name == kubelet:
				of = c.cpu
			case name == agent && *costPods == 60:
				if c.cri > maxPodCRI || c.resident > maxResident || of > 0 && c.cpu > of {
					t.Errorf("the agent takes %v CPU and %.1f calls to the runtime for each pod, and %d KiB; want no more than the kubelet's %v, %.1f, %d KiB",
						c.cpu, c.cri, c.resident>>10, of, maxPodCRI, maxResident>>10)
				}
			}
		}
	}
}

type cost struct {
	cpu      time.Duration // for each pod
	cri      float64       // for each pod
	resident int
}

// cost has the program that runs the node run pods and end them again.
func (n *node) cost(name string, pods int) cost {
	t := n.t
	t.Helper()
	time.Sleep(15 * time.Second) // what it does after its start is not the pods'
	idle := n.idle()
	list := v1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for i := range pods {
		raw, err := json.Marshal(&v1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%03d", i), Labels: map[string]string{"app": "cost"}},
			Spec: v1.PodSpec{NodeName: n.cluster.node, TerminationGracePeriodSeconds: new(int64(2)), Containers: []v1.Container{
				{Name: "main", Image: busybox, ImagePullPolicy: v1.PullNever, Command: []string{"sh", "-c", forever}},
			}},
		})
		n.must(err)
		list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
	}
	text, err := json.Marshal(&list)
	n.must(err)
	criBefore, lists := n.runtimeCalls(), n.runtimeLists()
	cpuBefore := n.cpu() // after the metrics, which are no cost of the pods
	n.profile(name)
	began := time.Now()
	n.apply(string(text))
	var half time.Duration
	n.cluster.until("all pods are ready", func() error {
		all, err := n.pods("app=cost")
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range all {
			if isReady(p) {
				ready++
			}
		}
		if half == 0 && ready >= pods/2 {
			half = time.Since(began)
		}
		if ready < pods {
			return fmt.Errorf("%d of %d", ready, pods)
		}
		return nil
	})
	ready := time.Since(began)
	time.Sleep(time.Second) // its events and looks are the pods' too
	c := cost{cpu: (n.cpu() - cpuBefore) / time.Duration(pods), resident: n.resident()}
	c.cri = float64(n.runtimeCalls()-criBefore) / float64(pods)
	api, anonymous := n.apiCalls(began, pods), n.status("RssAnon:")
	listed := n.runtimeLists() - lists
	time.Sleep(*costRest)
	restCPU, restBegan := n.cpu(), time.Now()
	rest := n.residents()
	restIdle := float64((n.cpu() - restCPU).Milliseconds()) / time.Since(restBegan).Seconds()
	median, restAnonymous := rest[len(rest)/2], n.status("RssAnon:")

	began = time.Now()
	n.kubectl("delete", "pods", "-l", "app=cost", "--wait=false")
	n.cluster.until("all are gone", func() error {
		all, err := n.pods("app=cost")
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d are left", len(all))
		}
		return err
	})
	t.Logf("%-7s %d pods: half ready %.1fs, all ready %.1fs, deleted %.1fs; for each pod %.1f ms CPU, %.1f calls to the runtime (%.1f lists), %.1f to the API server; resident %.1f MiB (%s), after %v %.1f MiB at least, %.1f in the median and %.1f at most (%s); idle %.1f ms CPU a second before, %.1f with the pods",
		name, pods, half.Seconds(), ready.Seconds(), time.Since(began).Seconds(), float64(c.cpu.Microseconds())/1e3, c.cri, float64(listed)/float64(pods), api,
		float64(c.resident)/(1<<20), anonymous,
		*costRest, float64(rest[0])/(1<<20), float64(median)/(1<<20), float64(rest[len(rest)-1])/(1<<20), restAnonymous, idle, restIdle)
	c.resident = median
	return c
}

// residents is the program's memory in each second of a minute, in bytes and sorted: what
// one moment shows depends on how long ago the node renewed its lease or reported.
func (n *node) residents() []int {
	n.t.Helper()
	var all []int
	for range 60 {
		all = append(all, n.resident())
		time.Sleep(time.Second)
	}
	slices.Sort(all)
	return all
}

// idle is what the program takes while nothing happens, in ms CPU a second.
func (n *node) idle() float64 {
	n.t.Helper()
	const long = 10 * time.Second
	before := n.cpu()
	time.Sleep(long)
	return float64((n.cpu() - before).Milliseconds()) / long.Seconds()
}

// cpu is what the program has used.
func (n *node) cpu() time.Duration {
	n.t.Helper()
	d, err := cpuOf(n.cmd.Process.Pid)
	n.must(err)
	return d
}

// resident is the program's memory in bytes.
func (n *node) resident() int {
	n.t.Helper()
	b, err := residentOf(n.cmd.Process.Pid)
	n.must(err)
	return b
}

func (n *node) runtimeCalls() int { return n.operations("") }
func (n *node) runtimeLists() int {
	return n.operations(`operation_type="list_containers"`) + n.operations(`operation_type="list_podsandbox"`)
}

// operations counts the calls to the runtime whose labels contain a text.
func (n *node) operations(with string) (count int) {
	n.t.Helper()
	var text []byte
	n.must(n.get("/api/v1/nodes/"+n.cluster.node+"/proxy/metrics", &text))
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "kubelet_runtime_operations_total{"); ok && strings.Contains(rest, with) {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			n.must(err)
			count += int(v)
		}
	}
	return count
}

// apiCalls counts the program's calls to the API server for each pod.
func (n *node) apiCalls(since time.Time, pods int) float64 {
	n.t.Helper()
	calls, err := n.cp.Calls(since)
	n.must(err)
	count := 0
	for _, c := range calls {
		if !ofNode(c) {
			count++
		}
	}
	return float64(count) / float64(pods)
}

// profile writes what the program spends its time on while pods start, and its heap
// after that.
func (n *node) profile(name string) {
	if *profile == "" {
		return
	}
	if err := os.MkdirAll(*profile, 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.profiles.Go(func() {
		get := func(file, query string) {
			var b []byte
			err := n.get("/api/v1/nodes/"+n.cluster.node+"/proxy/debug/pprof/"+query, &b)
			if err == nil {
				err = os.WriteFile(filepath.Join(*profile, filepath.Base(name)+"-"+file+".pprof"), b, 0o600)
			}
			if err != nil {
				n.t.Logf("profile of %s: %v", name, err)
			}
		}
		for i := range 3 {
			get(fmt.Sprintf("cpu%d", i), "profile?seconds=8") // the API server's client waits no longer
		}
		get("heap", "heap")
		get("allocs", "allocs")
	})
}
