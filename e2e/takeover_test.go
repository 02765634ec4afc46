//go:build kubelet

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/memmgr"
)

// ofCluster are pods that the API server gives to the node. They want: image,
// command.
const ofCluster = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {key: one}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, labels: {era: kubelet}}
spec:
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: conf, configMap: {name: conf}}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  initContainers:
  - {name: prepare, image: %[1]s, imagePullPolicy: Never, command: [sh, -c, "echo kept >/scratch/file; echo kept >/memory/file"], volumeMounts: [{name: scratch, mountPath: /scratch}, {name: memory, mountPath: /memory}]}
  - {name: beside, image: %[1]s, imagePullPolicy: Never, restartPolicy: Always, command: [sh, -c, %[2]q]}
  containers:
  - name: main
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, %[2]q]
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    volumeMounts: [{name: conf, mountPath: /conf}, {name: scratch, mountPath: /scratch}, {name: memory, mountPath: /memory}]
---
apiVersion: v1
kind: Pod
metadata: {name: again, labels: {era: kubelet}}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: scratch, emptyDir: {}}]
  containers:
  - name: main
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, "[ -e /scratch/file ] || { touch /scratch/file; exit 3; }; %[2]s"]
    volumeMounts: [{name: scratch, mountPath: /scratch}]
---
apiVersion: v1
kind: Pod
metadata: {name: done, labels: {era: ended}}
spec:
  restartPolicy: Never
  containers: [{name: main, image: %[1]s, imagePullPolicy: Never, command: [sh, -c, "exit 0"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: failed, labels: {era: ended}}
spec:
  restartPolicy: Never
  containers: [{name: main, image: %[1]s, imagePullPolicy: Never, command: [sh, -c, "exit 7"]}]
`

// withResources is a pod with a CPU and a device of its own. It wants: image,
// command, name, era.
const withResources = `
apiVersion: v1
kind: Pod
metadata: {name: %[3]s, labels: {era: %[4]s}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, %[2]q]
    resources: {limits: {cpu: 1, memory: 64Mi, example.com/thing: 1}}
`

// ownCPU is the CPU that the nth pod asks for which is to have one of its own: a whole one,
// as long as the machine has one for it beside the first, and else little of what is shared.
func ownCPU(n int) string {
	if n < runtime.NumCPU()-1 {
		return "cpu: 1, "
	}
	return "cpu: 50m, "
}

// takenOver is what must not change when another program takes a pod over.
type takenOver struct {
	uid        string
	containers string // IDs and restarts
	cpus       string // of a pod that asks for whole ones
	device     string
	allocated  string // of a pod that waits for more
	phase      v1.PodPhase
}

// A node that the kubelet ran is continued by the agent, and then by the kubelet
// again: with the same containers, CPUs, memory and devices. The kubelet does not start
// with state files that it would have counted otherwise.
func TestTakeover(t *testing.T) {
	if _, child := runApart(t); !child {
		return
	}
	program(t, kubelet)
	n := newNode(t, "nodeStatusUpdateFrequency: 2s\ncpuManagerPolicy: static\nsystemReserved: {cpu: 50m}\nmemoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 1Mi}}]\n")
	registered := n.devicePlugin("a", "b", "c")
	n.must(os.WriteFile(filepath.Join(n.dir, "manifests", "static.yaml"), []byte(pod("static", forever)), 0o600))
	n.must(os.WriteFile(filepath.Join(n.dir, "manifests", "fixed.yaml"), fmt.Appendf(nil,
		strings.NewReplacer(", example.com/thing: 1", "", "cpu: 1, ", ownCPU(0)).Replace(withResources), busybox, forever, "fixed", "static"), 0o600))

	n.run(kubelet)
	n.offered(registered)
	n.apply(fmt.Sprintf(ofCluster, busybox, forever))
	n.apply(strings.ReplaceAll(fmt.Sprintf(withResources, busybox, forever, "first", "kubelet"), "cpu: 1, ", ownCPU(1)))
	n.running("plain", "again", "first")
	n.restarted("again", 1)
	n.finished("done", "failed")
	n.apply(strings.Replace(pod("greedy", forever), "imagePullPolicy: Never", "imagePullPolicy: Never, resources: {requests: {memory: 16Mi}}", 1))
	n.running("greedy")
	var obj v1.Node
	n.must(n.get("/api/v1/nodes/"+n.cluster.node, &obj))
	n.kubectl("patch", "pod", "greedy", "--subresource=resize", "--patch", fmt.Sprintf( // the others have some of it
		`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"memory": %q}}}]}}`, obj.Status.Allocatable.Memory()))
	n.are("waiting for what they ask for", func(p *v1.Pod) bool { return allocated(p) != "" }, []string{"greedy"})
	static := []string{"static-" + n.cluster.node, "fixed-" + n.cluster.node}
	n.running(static...)
	pods := append([]string{"plain", "again", "first", "done", "failed"}, static...)
	greedy := n.facts("greedy")

	// Each program gets one more pod with a device, for which it must not take those of
	// the others.
	for i, turn := range []struct{ program, pod, resources string }{
		{agent, "second", ownCPU(2)},
		{kubelet, "third", ""},
		{agent, "", ""},
	} {
		before := n.facts(pods...)
		n.end()
		n.run(turn.program)
		n.offered(registered)
		if i == 0 { // later pods could not be scheduled beside it
			n.same("the kubelet", greedy)
			n.kubectl("delete", "pod", "--timeout=90s", "greedy")
		}
		if turn.pod != "" {
			n.apply(strings.ReplaceAll(fmt.Sprintf(withResources, busybox, forever, turn.pod, "later"), "cpu: 1, ", turn.resources))
			n.running(turn.pod)
			pods = append(pods, turn.pod)
		}
		n.same(fmt.Sprintf("turn %d", i), before)
		n.apart(pods...)
		n.recorded(pods...)
		t.Logf("%s went on with %d pods, 0 of them changed if nothing is said above", turn.program, len(before))
	}
	if got := n.inside("plain", "cat", "/scratch/file", "/memory/file", "/conf/key"); got != "kept\nkept\none" {
		t.Errorf("volumes of plain hold %q", got)
	}
	n.kubectl("delete", "pod", "--timeout=90s", "-l", "era in (kubelet, later, ended)")
}

// apart wants that no two pods have the same device or CPUs of their own.
func (n *node) apart(names ...string) {
	n.t.Helper()
	facts := n.facts(names...)
	owner := map[string]string{}
	for _, name := range names {
		f := facts[name]
		own := []string{f.device}
		if f.cpus != "" {
			own = append(own, f.cpus)
		}
		for _, what := range own {
			if other, taken := owner[what]; taken && what != "" {
				n.t.Errorf("%s and %s both have %s", other, name, what)
			}
			owner[what] = name
		}
	}
}

// recorded waits until the kubelet's states of CPUs and memory say what pods have,
// whoever runs the node.
func (n *node) recorded(names ...string) {
	n.t.Helper()
	facts := n.facts(names...)
	pods, err := n.pods("")
	n.must(err)
	uidOf := func(name string) string {
		if static := pods[name].Annotations[v1.MirrorPodAnnotationKey]; static != "" {
			return static
		}
		return facts[name].uid
	}
	n.until("cpu_manager_state says who has which CPUs", func() error {
		b, err := os.ReadFile(filepath.Join(kubeletRoot, "cpu_manager_state"))
		if err != nil {
			return err
		}
		state, err := cpumgr.DecodeKubelet(b)
		if err != nil {
			return err
		}
		own := 0
		for name, f := range facts {
			if f.cpus == "" {
				continue
			}
			own++
			if has := state.Pods[uidOf(name)]["main"]; f.cpus != "Cpus_allowed_list:\t"+has.String() {
				return fmt.Errorf("%s runs on %q, and %s", name, f.cpus, b)
			}
		}
		if own != len(state.Pods) || own == 0 {
			return fmt.Errorf("%d of these pods have CPUs of their own: %s", own, b)
		}
		return nil
	})
	n.until("memory_manager_state says who has how much memory", func() error {
		b, err := os.ReadFile(filepath.Join(kubeletRoot, "memory_manager_state"))
		if err != nil {
			return err
		}
		state, err := memmgr.DecodeKubelet(b)
		if err != nil {
			return err
		}
		own := 0
		for _, name := range names {
			if pods[name].Status.QOSClass != v1.PodQOSGuaranteed {
				continue
			}
			own++
			if has := state.Pods[uidOf(name)]["main"]; len(has) != 1 || has[0].Bytes != 64<<20 {
				return fmt.Errorf("%s has %v: %s", name, has, b)
			}
		}
		if own != len(state.Pods) || own < 2 {
			return fmt.Errorf("%d of these pods have memory of their own: %s", own, b)
		}
		return nil
	})
}

// devicePlugin offers devices for as long as the test runs. It registers with
// whoever serves; registered waits for that, once for each program that runs the node.
func (n *node) devicePlugin(devices ...string) (registered func()) {
	n.t.Helper()
	dir, sockets := filepath.Join(n.dir, "devices"), filepath.Join(kubeletRoot, "device-plugins")
	n.must(os.MkdirAll(sockets, 0o755))
	n.must(os.Mkdir(dir, 0o755))
	for _, d := range devices {
		n.must(os.WriteFile(filepath.Join(dir, d), nil, 0o600))
	}
	log := &testprogram.Output{}
	cmd := exec.Command(n.build("deviceplugin", "./examples/deviceplugin"), "--devices", dir, "--sockets", sockets)
	cmd.Stdout, cmd.Stderr = log, log
	n.must(cmd.Start())
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("the device plugin said:\n%s", tail(log.String(), 20))
		}
	})
	times := 0
	return func() {
		n.t.Helper()
		times++
		n.until("the device plugin is registered", func() error {
			if got := strings.Count("\n"+log.String(), "\nregistered "); got < times {
				return fmt.Errorf("%d times, want %d", got, times)
			}
			return nil
		})
	}
}

// offered waits until the plugin is registered and the node has its devices to give by
// the word of the program that runs it now: the Node may still have them of the one
// before, and the kubelet fails pods that come too early.
func (n *node) offered(registered func()) {
	n.t.Helper()
	registered()
	since := time.Now()
	n.until("devices are offered", func() error {
		var obj v1.Node
		if err := n.get("/api/v1/nodes/"+n.cluster.node, &obj); err != nil {
			return err
		}
		have := obj.Status.Allocatable["example.com/thing"]
		for _, c := range obj.Status.Conditions {
			if c.Type == v1.NodeReady && c.LastHeartbeatTime.After(since.Add(time.Second)) && have.Value() == 3 {
				return nil
			}
		}
		return fmt.Errorf("allocatable: %v", obj.Status.Allocatable)
	})
}

// restarted waits until a pod's container runs for the n-th time.
func (n *node) restarted(name string, times int32) {
	n.t.Helper()
	n.until(name+" was restarted", func() error {
		pods, err := n.pods("")
		if err != nil {
			return err
		}
		p := pods[name]
		if !isReady(p) || p.Status.ContainerStatuses[0].RestartCount != times {
			return fmt.Errorf("status: %+v", p.Status)
		}
		return nil
	})
}

// running waits until pods are ready, and finished until they have ended.
func (n *node) running(names ...string) {
	n.t.Helper()
	n.are("ready", func(p *v1.Pod) bool { return isReady(p) }, names)
}

func (n *node) finished(names ...string) {
	n.t.Helper()
	n.are("ended", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed }, names)
}

func (n *node) are(what string, are func(*v1.Pod) bool, names []string) {
	n.t.Helper()
	n.until(fmt.Sprintf("%v are %s", names, what), func() error {
		pods, err := n.pods("")
		if err != nil {
			return err
		}
		for _, name := range names {
			switch p := pods[name]; {
			case p == nil:
				return fmt.Errorf("%s is not there", name)
			case !are(p):
				return fmt.Errorf("%s: %+v", name, p.Status)
			}
		}
		return nil
	})
}

// facts are what pods are and have.
func (n *node) facts(names ...string) map[string]takenOver {
	n.t.Helper()
	pods, err := n.pods("")
	n.must(err)
	out := map[string]takenOver{}
	for _, name := range names {
		p := pods[name]
		if p == nil {
			out[name] = takenOver{}
			continue
		}
		f := takenOver{uid: string(p.UID), phase: p.Status.Phase}
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			f.containers += fmt.Sprintf("%s %s restarts=%d\n", c.Name, c.ContainerID, c.RestartCount)
		}
		if p.Status.Phase == v1.PodRunning && p.Status.QOSClass == v1.PodQOSGuaranteed {
			if p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()%1000 == 0 {
				f.cpus = n.inside(name, "grep", "Cpus_allowed_list", "/proc/self/status")
			}
			f.device = n.inside(name, "sh", "-c", "echo $DEVICES")
		}
		f.allocated = allocated(p)
		out[name] = f
	}
	return out
}

// allocated is what a pod was allocated that waits for more, or "".
func allocated(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending && c.Status == v1.ConditionTrue {
			return fmt.Sprint(c.Reason, " ", p.Status.ContainerStatuses[0].AllocatedResources.Memory())
		}
	}
	return ""
}

// same compares what pods are and have with what they had before, now and once more
// after every pod has been looked at again.
func (n *node) same(from string, before map[string]takenOver) {
	n.t.Helper()
	for range 2 {
		for name, was := range before {
			if is := n.facts(name)[name]; is != was {
				n.t.Errorf("%s was not continued from %s:\n%+v\n%+v", name, from, was, is)
			}
		}
		time.Sleep(5 * time.Second)
	}
}
