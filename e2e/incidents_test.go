//go:build kubelet

package e2e_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/testprogram"
)

var (
	incidentsOf     = flag.String("incidents.of", kubelet+","+agent, "programs that live through the incidents, in this order")
	incidentsReport = flag.String("incidents.report", "", "`file` for the answers of the programs, as Markdown")
	incidentsOnly   = flag.String("incidents.only", "", "`pattern` of the incidents; all by default")
)

// eventTTL is how long the API server keeps events. Its default is an hour.
const eventTTL = 3 * time.Minute

// An incident happens to the pod of its name.
type incident struct {
	name string
	what string // for the report
	// manifest is applied before all incidents. If static is true, it is a manifest of the node's
	// directory.
	manifest string
	static   bool
	// live makes the incident happen when the pods are ready; nil if the manifest is enough.
	live func(*incidents)
	// over reports that the incident has happened. If it is nil, live returns after the incident.
	over func(*incidents, *v1.Pod) bool
	// heal repairs what is broken.
	heal func(*incidents)
	// why is a part of the answer of "agent why", node of the answer of "agent why node".
	why, node string
}

// waits is a command that does something bad once, when the file /tmp/go is made.
func waits(bad string) string { return "while [ ! -e /tmp/go ]; do sleep 0.3; done; " + bad }

// with is the manifest of a pod with more fields of its container main and of its spec.
func with(name, command, container, spec string) string {
	text := pod(name, command)
	if container != "" {
		text = strings.Replace(text, "imagePullPolicy: Never", "imagePullPolicy: Never, "+container, 1)
	}
	if spec != "" {
		text = strings.Replace(text, "spec:\n", "spec:\n  "+spec+"\n", 1)
	}
	return text
}

// together are the incidents of pods. They happen at the same time.
var together = []incident{
	{
		name: "oom", what: "A container uses more memory than its limit",
		manifest: with("oom", waits("exec /bin/busybox tail -c 200000000 /dev/zero"), "resources: {limits: {memory: 32Mi}}", ""),
		live:     func(x *incidents) { x.inside("oom", "touch", "/tmp/go") },
		over:     restarted,
		why:      "it was killed for using more than its memory limit of 32 MiB",
	},
	{
		name: "exit", what: "A program ends with an error",
		manifest: pod("exit", waits("exit 3")),
		live:     func(x *incidents) { x.inside("exit", "touch", "/tmp/go") },
		over:     restarted,
		why:      "it ended with exit code 3",
	},
	{
		name: "killed", what: "Somebody kills a container's process on the machine",
		manifest: pod("killed", forever),
		live:     func(x *incidents) { x.killTask(x.container("killed")) },
		over:     restarted,
		why:      "exit code 137 (SIGKILL: it was killed)",
	},
	{
		name: "liveness", what: "A liveness probe gets HTTP 404",
		manifest: with("liveness", "/bin/busybox mkdir /www; echo ok >/www/healthz; exec httpd -f -p 8080 -h /www",
			"livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, failureThreshold: 3}", ""),
		live: func(x *incidents) { x.inside("liveness", "/bin/busybox", "rm", "/www/healthz") },
		over: restarted,
		why:  "the liveness probe failed three times, HTTP 404 from ",
	},
	{
		name: "startup", what: "A startup probe never succeeds",
		manifest: with("startup", forever, `startupProbe: {exec: {command: ["false"]}, periodSeconds: 2, failureThreshold: 3}`, ""),
		over:     restarted,
		why:      "the startup probe failed three times, its command exited with an error",
	},
	{
		name: "readiness", what: "A pod is not ready for some seconds",
		manifest: with("readiness", "touch /tmp/ok; "+forever, `readinessProbe: {exec: {command: [sh, -c, "[ -e /tmp/ok ]"]}, periodSeconds: 1, failureThreshold: 2}`, ""),
		live:     func(x *incidents) { x.inside("readiness", "/bin/busybox", "rm", "/tmp/ok") },
		over:     func(_ *incidents, p *v1.Pod) bool { return p != nil && !isReady(p) },
		heal:     func(x *incidents) { x.inside("readiness", "touch", "/tmp/ok") },
		why:      "the readiness probe of container main failed twice, its command exited with an error",
	},
	{
		name: "loop", what: "A program ends at once, again and again",
		manifest: pod("loop", "exit 1"),
		over:     func(_ *incidents, p *v1.Pod) bool { return restarts(p) >= 2 },
		why:      "it ended with exit code 1",
	},
	{
		name: "init", what: "An init container fails",
		manifest: with("init", forever, "", fmt.Sprintf("initContainers: [{name: first, image: %q, imagePullPolicy: Never, command: [sh, -c, exit 4]}]", busybox)),
		over: func(_ *incidents, p *v1.Pod) bool {
			return len(p.Status.InitContainerStatuses) > 0 && p.Status.InitContainerStatuses[0].RestartCount > 0
		},
		why: "it ended with exit code 4",
	},
	{
		name: "hook", what: "A postStart hook fails",
		manifest: with("hook", forever, `lifecycle: {postStart: {exec: {command: ["false"]}}}`, ""),
		over:     func(x *incidents, p *v1.Pod) bool { return restarts(p) > 0 || x.event("hook", "FailedPostStartHook") },
		why:      "its postStart hook failed",
	},
	{
		name: "deadline", what: "A pod runs for longer than its activeDeadlineSeconds",
		manifest: with("deadline", forever, "", "activeDeadlineSeconds: 15"),
		over:     ended,
		why:      "it ran for longer than its spec.activeDeadlineSeconds",
	},
	{
		name: "storage", what: "An emptyDir gets larger than its sizeLimit",
		manifest: with("storage", waits("dd if=/dev/zero of=/data/file bs=1000000 count=8; "+forever),
			"volumeMounts: [{name: data, mountPath: /data}]", "volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]"),
		live: func(x *incidents) { x.inside("storage", "touch", "/tmp/go") },
		over: ended,
		why:  "it was evicted, as it used more local storage than its own limit",
	},
	{
		name: "image", what: "The registry of an image does not answer",
		manifest: strings.NewReplacer(busybox, "127.0.0.1:5/gone:1", "Never", "IfNotPresent").Replace(pod("image", forever)),
		over:     waitsFor("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"),
		why:      "image 127.0.0.1:5/gone:1 of container main could not be pulled: ",
	},
	{
		name: "image-lost", what: "An image is removed from the node, and the container ends later",
		manifest: strings.Replace(pod("image-lost", waits("exit 5")), busybox, otherImage, 1),
		live: func(x *incidents) {
			x.removeImage(otherImage)
			x.inside("image-lost", "touch", "/tmp/go")
		},
		over: waitsFor("ErrImageNeverPull"),
		why:  "image " + otherImage + " of container main could not be pulled: ErrImageNeverPull",
	},
	{
		name: "secret", what: "A Secret of an environment variable does not exist",
		manifest: with("secret", forever, "env: [{name: A, valueFrom: {secretKeyRef: {name: missing, key: a}}}]", ""),
		over:     waitsFor("CreateContainerConfigError"),
		why:      "it could not be synced: CreateContainerConfigError (not found)",
	},
	{
		name: "volume", what: "A ConfigMap of a volume does not exist",
		manifest: with("volume", forever, "volumeMounts: [{name: conf, mountPath: /conf}]", "volumes: [{name: conf, configMap: {name: missing}}]"),
		over:     func(x *incidents, _ *v1.Pod) bool { return x.event("volume", "FailedMount") },
		why:      "volume conf is not mounted",
	},
	{
		name: "hung", what: "The driver of a volume does not answer",
		live: func(x *incidents) {
			x.apply(withDisk("earlier"))
			x.until("the driver works", func() error { return x.is("earlier", up) })
			x.must(x.driver.Process.Signal(syscall.SIGSTOP))
			x.apply(withDisk("hung"))
		},
		over: func(x *incidents, _ *v1.Pod) bool { return x.event("hung", "FailedMount") },
		heal: func(x *incidents) {
			x.must(x.driver.Process.Signal(syscall.SIGCONT))
			x.until("the hung pod is ready", func() error { return x.is("hung", up) })
		},
		why: "it could not be synced: FailedMount (timed out); volume data is not mounted",
	},
	{
		name: "device", what: "A device of a container breaks",
		manifest: with("device", forever, "resources: {limits: {example.com/thing: 1}}", ""),
		live: func(x *incidents) {
			for _, d := range x.devices {
				x.must(os.Remove(d))
			}
		},
		over: func(x *incidents, _ *v1.Pod) bool {
			var obj v1.Node
			x.must(x.get("/api/v1/nodes/"+x.cluster.node, &obj))
			free := obj.Status.Allocatable["example.com/thing"]
			return free.IsZero()
		},
		heal: func(x *incidents) {
			for _, d := range x.devices {
				x.must(os.WriteFile(d, nil, 0o600))
			}
		},
		why: "1 of the devices example.com/thing of container main became unhealthy",
	},
	{
		name: "rejected", what: "A pod requests more CPU than the node has",
		manifest: with("rejected", forever, "resources: {requests: {cpu: 1000}}", ""),
		over:     ended,
		why:      "the node rejected it: OutOfcpu",
	},
	{
		name: "preempted", what: "A critical pod needs the CPU of another one",
		manifest: with("preempted", forever, "resources: {requests: {cpu: %CPU}}", ""),
		live: func(x *incidents) {
			x.apply(x.filled(with("critical", forever, "resources: {requests: {cpu: %CPU}}", "priorityClassName: system-node-critical")))
		},
		over: ended,
		why:  "it was preempted: it made room for a critical pod",
	},
	{
		name: "sandbox", what: "The process of a pod's sandbox is killed",
		manifest: pod("sandbox", forever),
		live:     func(x *incidents) { x.killTask(x.sandbox("sandbox")) },
		over:     restarted,
		why:      "its sandbox was made again",
	},
	{
		name: "deleted", what: "Somebody deletes the pod through the API",
		manifest: pod("deleted", forever),
		live:     func(x *incidents) { x.kubectl("delete", "pod", "deleted", "--wait=false") },
		over:     func(_ *incidents, p *v1.Pod) bool { return p == nil },
		why:      "its deletion was asked for",
	},
	{
		name: "edited", what: "A manifest of the directory is edited, and later edited back", static: true,
		manifest: pod("edited", forever),
		live: func(x *incidents) {
			first := x.pod("edited").UID
			x.write("edited", pod("edited", "true; "+forever))
			x.until("the edited pod is ready", func() error {
				return x.is("edited", func(p *v1.Pod) bool { return up(p) && p.UID != first })
			})
			second := x.pod("edited").UID
			x.write("edited", pod("edited", forever))
			x.until("the pod as it was is ready", func() error {
				return x.is("edited", func(p *v1.Pod) bool { return up(p) && p.UID != second })
			})
		},
		why: "its definition was changed",
	},
	{
		name: "moved", what: "A manifest is moved away, and later put back", static: true,
		manifest: pod("moved", forever),
		live: func(x *incidents) {
			x.must(os.Remove(x.file("moved")))
			x.until("the pod of the removed manifest is gone", func() error { return x.is("moved", func(p *v1.Pod) bool { return p == nil }) })
		},
		over: func(_ *incidents, p *v1.Pod) bool { return p == nil },
		heal: func(x *incidents) {
			x.write("moved", pod("moved", forever))
			x.until("the pod of the manifest is ready", func() error { return x.is("moved", up) })
		},
		why: "it was removed from its source (file)",
	},
}

// alone are the incidents of the node. They happen one after another.
var alone = []incident{
	{
		name: "agent-killed", what: "The node's agent is killed", manifest: pod("agent-killed", forever),
		live: func(x *incidents) {
			x.kill()
			time.Sleep(5 * time.Second)
			x.begin()
		},
		why: "after it had been killed or had crashed", node: "after it had been killed or had crashed",
	},
	{
		name: "meanwhile", what: "A container ends while the node's agent is away", manifest: pod("meanwhile", waits("exit 6")),
		live: func(x *incidents) {
			x.inside("meanwhile", "sh", "-c", "(sleep 3; touch /tmp/go) >/dev/null 2>&1 &")
			x.kill()
			time.Sleep(6 * time.Second)
			x.begin()
			x.until("the container runs again", func() error { return x.is("meanwhile", func(p *v1.Pod) bool { return restarted(x, p) }) })
		},
		why: "it ended with exit code 6", node: "after it had been killed or had crashed",
	},
	{
		name: "runtime", what: "The container runtime is away for 50 seconds", manifest: pod("runtime", forever),
		live: func(x *incidents) {
			x.must(x.c.Kill())
			time.Sleep(5 * time.Second)
			x.at["runtime"] = time.Now()
			time.Sleep(45 * time.Second)
			x.must(x.c.Resume())
			x.cluster.until("the node is ready again", func() error { return x.conditionIs(v1.NodeReady, v1.ConditionTrue) })
		},
		node: "the container runtime did not answer: ",
	},
	{
		name: "reboot", what: "The machine loses its power", manifest: pod("reboot", forever),
		live: func(x *incidents) {
			x.kill()
			x.must(x.c.PowerOff())
			x.boots++
			x.boot(fmt.Sprintf("00000000-0000-4000-8000-%012d", x.boots))
			time.Sleep(3 * time.Second)
			x.must(x.c.Resume())
			x.begin()
			x.until("the container runs again", func() error { return x.is("reboot", func(p *v1.Pod) bool { return restarted(x, p) }) })
		},
		why: "the machine went down", node: "the machine was started again after it had gone down without notice",
	},
	{
		name: "pressure", what: "The node runs short of memory", manifest: pod("pressure", forever),
		live: func(x *incidents) {
			text, err := os.ReadFile(x.config)
			x.must(err)
			x.kill()
			x.must(os.WriteFile(x.config, []byte(strings.Replace(string(text), `memory.available: "1Mi"`, `memory.available: "99%"`, 1)), 0o600))
			x.begin()
			x.until("the pod is evicted", func() error { return x.is("pressure", func(p *v1.Pod) bool { return ended(x, p) }) })
			x.seen("pressure", x.pod("pressure"))
			x.nextMinute()
			x.kill()
			x.must(os.WriteFile(x.config, text, 0o600))
			x.begin()
		},
		why: "it was evicted, as the node ran short (MemoryPressure since ", node: "MemoryPressure",
	},
}

// otherImage is an image that only one pod has.
const otherImage = "localhost/other:1"

// withDisk is a pod with a volume of the driver.
func withDisk(name string) string {
	return strings.ReplaceAll(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.example.com}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %NAME}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: %NAME}
  csi: {driver: disk.example.com, volumeHandle: %NAME, volumeAttributes: {create: directory, size: 16Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %NAME}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: %NAME, resources: {requests: {storage: 16Mi}}}
---
`, "%NAME", name) + with(name, forever, "volumeMounts: [{name: data, mountPath: /data}]", fmt.Sprintf("volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]", name))
}

func restarts(p *v1.Pod) int32 {
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// restarted reports that a container has ended, and that the next one was started.
func restarted(_ *incidents, p *v1.Pod) bool {
	return restarts(p) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
}

// up reports that a pod is there and ready.
func up(p *v1.Pod) bool { return p != nil && isReady(p) }

// ended reports that a pod has ended. The kubelet shows a pod that it has ended as Succeeded if its program
// ends with exit code 0.
func ended(_ *incidents, p *v1.Pod) bool {
	return p != nil && (p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded)
}

// waitsFor reports that a container waits for one of some reasons.
func waitsFor(reasons ...string) func(*incidents, *v1.Pod) bool {
	return func(_ *incidents, p *v1.Pod) bool {
		return p != nil && slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
			return c.State.Waiting != nil && slices.Contains(reasons, c.State.Waiting.Reason)
		})
	}
}

// incidents is a node that lives through incidents.
type incidents struct {
	*node
	program string // that runs the node
	driver  *exec.Cmd
	devices []string
	boots   int
	logs    strings.Builder // of the program's earlier processes

	at      map[string]time.Time // when the incident of a pod had happened
	events  map[types.UID]v1.Event
	answers map[string]*answer
}

// Incidents are made on purpose, with the kubelet and with the agent. When the pods are gone, "agent why
// --at" has the cause of each, and the record can be replayed. The report has the agent's answers beside
// the kubelet's events, statuses and log.
func TestIncidentsBesideKubelet(t *testing.T) {
	if _, child := runApart(t); !child {
		return
	}
	programs := strings.Split(*incidentsOf, ",")
	for _, name := range programs {
		program(t, name)
	}
	only := regexp.MustCompile(*incidentsOnly)
	if unmatched := func(i incident) bool { return !only.MatchString(i.name) }; *incidentsOnly != "" {
		together, alone = slices.DeleteFunc(together, unmatched), slices.DeleteFunc(alone, unmatched)
	}
	x := &incidents{node: nodeOf(t, controlplane.Options{APIServer: []string{"--event-ttl", eventTTL.String()}}, "nodeStatusUpdateFrequency: 2s\nmaxPods: 200\nserializeImagePulls: false\n")}
	registered := x.devicePlugin("a", "b", "c")
	for _, d := range []string{"a", "b", "c"} {
		x.devices = append(x.devices, filepath.Join(x.dir, "devices", d))
	}
	x.startDriver()
	all := map[string]map[string]*answer{}
	defer func() { x.report(programs, all) }()
	for _, name := range programs {
		all[name] = map[string]*answer{}
		x.lives(name, registered, all[name])
	}
}

// startDriver starts the CSI driver, which runs until the end of the test.
func (x *incidents) startDriver() {
	x.t.Helper()
	path := filepath.Join(x.dir, "csidriver")
	x.must(testprogram.Compile(x.t.Context(), ".", path, "./csidriver"))
	x.driver = exec.Command(path, "--node", x.cluster.node, "--state", filepath.Join(x.dir, "disks"),
		"--registry", filepath.Join(kubeletRoot, "plugins_registry"), "--dir", filepath.Join(kubeletRoot, "plugins"))
	x.must(x.driver.Start())
	x.t.Cleanup(func() {
		_ = x.driver.Process.Kill()
		_ = x.driver.Wait()
	})
}

// answer is what can be found out about an incident.
type answer struct {
	at             time.Time
	why, whyNode   string
	events, status string
	log            string
}

// lives runs the node with a program through all incidents, and fills in the answers by the name of the pod.
func (x *incidents) lives(program string, registered func(), answers map[string]*answer) {
	x.t.Helper()
	x.program, x.at, x.events, x.answers = program, map[string]time.Time{}, map[types.UID]v1.Event{}, answers
	x.logs.Reset()
	other := busyboxImage(x.t)
	other.Name, other.Cmd = otherImage, []string{"sleep", "1"}
	importImage(x.t, x.c, other)
	x.node.run(program)
	x.offered(registered)
	x.until("the namespace is ready for pods", func() error {
		_, err := x.try("get", "serviceaccount/default", "configmap/kube-root-ca.crt")
		return err
	})
	x.liveTogether()
	x.gather(together)
	for _, i := range alone {
		x.make(i)
	}
	for _, i := range alone {
		x.until(i.name+" is ready", func() error { return x.is(i.name, up) })
		x.nextMinute()
		i.live(x)
		if x.answers[i.name] == nil {
			x.seen(i.name, x.pod(i.name))
		}
	}
	x.gather(alone)
	x.end()
	if program == kubelet {
		x.expire()
	} else {
		for _, i := range slices.Concat(together, alone) {
			x.ask(i)
		}
	}
	x.deleteAll("events")
}

// liveTogether makes the incidents of pods, and waits until all have happened.
func (x *incidents) liveTogether() {
	x.t.Helper()
	for _, i := range together {
		x.make(i)
	}
	for _, i := range together {
		if i.live != nil && i.manifest != "" {
			x.until(i.name+" is ready", func() error { return x.is(i.name, up) })
		}
	}
	began := time.Now()
	for _, i := range together {
		if i.live != nil {
			i.live(x)
		}
		if i.over == nil {
			x.seen(i.name, x.pod(i.name))
		}
	}
	for left := true; left; time.Sleep(500 * time.Millisecond) {
		left = false
		x.look()
		pods, err := x.pods("")
		x.must(err)
		for _, i := range together {
			if !x.at[i.name].IsZero() {
				continue
			}
			p := x.ofName(pods, i.name)
			late := time.Since(began) > testTimeout
			if late && !i.over(x, p) {
				x.t.Errorf("%s: %s has not happened; the pod is %s", x.program, i.name, statusLine(p))
			}
			if late || i.over(x, p) {
				x.seen(i.name, p)
			} else {
				left = true
			}
		}
	}
	x.t.Logf("%s: %d incidents in %v", x.program, len(together), time.Since(began).Round(time.Second))
	x.nextMinute()
	for _, i := range together {
		if i.heal != nil {
			i.heal(x)
		}
	}
}

// nextMinute waits until the minute is over: people ask about minutes, and the answer is about the last thing
// that happened. Then it waits for what an agent that is killed would not have written to its record.
func (x *incidents) nextMinute() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Minute).Add(time.Minute + 2*time.Second).Sub(now))
}

// gather keeps what is known of incidents, and removes all pods after the last minute of an incident.
func (x *incidents) gather(all []incident) {
	x.t.Helper()
	time.Sleep(settled) // events come after what they tell of
	x.look()
	for _, i := range all {
		a := x.answers[i.name]
		a.events, a.log = x.eventsOf(i), x.logOf(i.name)
		if i.static {
			x.must(os.Remove(x.file(i.name)))
		}
	}
	x.nextMinute()
	x.deleteAll("pods")
	x.until("the pods are gone", func() error {
		pods, err := x.pods("")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are left", len(pods))
		}
		return err
	})
	x.deleteAll("persistentvolumeclaims")
	x.kubectl("delete", "persistentvolume", "--all", "--timeout=60s")
}

// make applies the manifest of an incident.
func (x *incidents) make(i incident) {
	x.t.Helper()
	switch text := x.filled(i.manifest); {
	case i.static:
		x.write(i.name, text)
	case text != "":
		x.apply(text)
	}
}

// filled has the values of this node in a manifest, and the node's name if it is a pod's.
func (x *incidents) filled(text string) string {
	if strings.Contains(text, "%CPU") {
		var obj v1.Node
		x.must(x.get("/api/v1/nodes/"+x.cluster.node, &obj))
		text = strings.ReplaceAll(text, "%CPU", fmt.Sprintf("%dm", obj.Status.Allocatable.Cpu().MilliValue()*6/10))
	}
	return text
}

// apply gives the pods of a text to the node.
func (x *incidents) apply(text string) {
	x.t.Helper()
	x.node.apply(strings.ReplaceAll(text, "  terminationGracePeriodSeconds: 2\n", "  terminationGracePeriodSeconds: 2\n  nodeName: "+x.cluster.node+"\n"))
}

func (x *incidents) file(name string) string { return filepath.Join(x.dir, "manifests", name+".yaml") }

// write writes a manifest of the node's directory, as an editor does.
func (x *incidents) write(name, text string) {
	x.t.Helper()
	temp := filepath.Join(x.dir, name+".new")
	x.must(os.WriteFile(temp, []byte(text), 0o600))
	x.must(os.Rename(temp, x.file(name)))
}

// seen notes that an incident has happened, and the pod's status at that time; p is nil if the pod is gone.
func (x *incidents) seen(name string, p *v1.Pod) {
	x.at[name] = cmp.Or(x.at[name], time.Now())
	x.answers[name] = &answer{at: x.at[name], status: statusLine(p)}
}

// until waits until ask has no error, and keeps the events meanwhile.
func (x *incidents) until(what string, ask func() error) {
	x.t.Helper()
	x.cluster.until(what, func() error {
		x.look()
		return ask()
	})
}

// pod returns the pod of an incident; nil if there is none.
func (x *incidents) pod(name string) *v1.Pod {
	x.t.Helper()
	pods, err := x.pods("")
	x.must(err)
	return x.ofName(pods, name)
}

// ofName finds the pod of an incident, which may be a mirror.
func (x *incidents) ofName(pods map[string]*v1.Pod, name string) *v1.Pod {
	return cmp.Or(pods[name], pods[name+"-"+x.cluster.node])
}

// is returns an error unless a pod is as wanted.
func (x *incidents) is(name string, as func(*v1.Pod) bool) error {
	pods, err := x.pods("")
	if err != nil {
		return err
	}
	if p := x.ofName(pods, name); !as(p) {
		return fmt.Errorf("%s is %s", name, statusLine(p))
	}
	return nil
}

// look keeps the events that there are now.
func (x *incidents) look() {
	x.t.Helper()
	var list v1.EventList
	x.must(x.get("/api/v1/namespaces/default/events", &list))
	for _, e := range list.Items {
		if !strings.Contains(e.Source.Component+e.ReportingController, "scheduler") && !strings.Contains(e.Source.Component+e.ReportingController, "controller") {
			x.events[e.UID] = e
		}
	}
}

// event reports whether there is an event of a pod.
func (x *incidents) event(name, reason string) bool {
	for _, e := range x.events {
		if x.ofPod(e.InvolvedObject.Name, name) && e.Reason == reason {
			return true
		}
	}
	return false
}

func (x *incidents) ofPod(object, name string) bool {
	return object == name || object == name+"-"+x.cluster.node
}

// kill ends the program at once.
func (x *incidents) kill() {
	x.killAgent()
	x.logs.WriteString(x.log.String())
}

// begin starts the program again.
func (x *incidents) begin() { x.node.run(x.program) }

// boot sets the ID of the machine's boot for the programs of this test.
func (x *incidents) boot(id string) {
	x.t.Helper()
	const kernels = "/proc/sys/kernel/random/boot_id"
	file := filepath.Join(x.dir, "boot_id")
	x.must(os.WriteFile(file, []byte(id+"\n"), 0o444))
	_ = unix.Unmount(kernels, unix.MNT_DETACH)
	x.must(unix.Mount(file, kernels, "", unix.MS_BIND, ""))
	x.t.Cleanup(func() { _ = unix.Unmount(kernels, unix.MNT_DETACH) })
}

// runtime calls the container runtime.
func (x *incidents) runtime(call func(context.Context, grpc.ClientConnInterface) error) {
	x.t.Helper()
	conn, err := grpc.NewClient("unix://"+x.c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	x.must(err)
	defer func() { _ = conn.Close() }()
	x.must(call(x.t.Context(), conn))
}

// container returns the ID of a pod's running container.
func (x *incidents) container(name string) (id string) {
	x.runtime(func(ctx context.Context, conn grpc.ClientConnInterface) error {
		list, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.name": name}, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
		if err == nil && len(list.GetContainers()) == 1 {
			id = list.GetContainers()[0].GetId()
		}
		return err
	})
	return id
}

// sandbox returns the ID of a pod's sandbox.
func (x *incidents) sandbox(name string) (id string) {
	x.runtime(func(ctx context.Context, conn grpc.ClientConnInterface) error {
		list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.name": name},
		}})
		if err == nil && len(list.GetItems()) == 1 {
			id = list.GetItems()[0].GetId()
		}
		return err
	})
	return id
}

func (x *incidents) removeImage(name string) {
	x.runtime(func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := runtimeapi.NewImageServiceClient(conn).RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		return err
	})
}

// killTask kills the process of a container or a sandbox, without the agent.
func (x *incidents) killTask(id string) {
	x.t.Helper()
	out, err := exec.Command(program(x.t, "ctr"), "-a", x.c.Socket, "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", id).CombinedOutput()
	if err != nil {
		x.t.Fatalf("kill task %q: %v: %s", id, err, out)
	}
}

// ask fills in the agent's answers, and replays its record.
func (x *incidents) ask(i incident) {
	x.t.Helper()
	a := x.answers[i.name]
	at := a.at.Format("15:04")
	a.why = x.agentSays("why", i.name, "--at", at)
	if !strings.Contains(a.why, i.why) {
		x.t.Errorf("%s: no %q in:\n%s", i.name, i.why, a.why)
	}
	if i.node != "" {
		if a.whyNode = x.agentSays("why", "node", "--at", at); !strings.Contains(a.whyNode, i.node) {
			x.t.Errorf("%s: no %q in:\n%s", i.name, i.node, a.whyNode)
		}
	}
	file := filepath.Join(x.dir, i.name+".record")
	x.agentSays("record", "export", i.name, file)
	out, err := exec.Command(program(x.t, x.program), "replay", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), " decisions, 0 of which this version makes differently") {
		x.t.Errorf("%s: replay: %v:\n%s", i.name, err, out)
	}
}

// agentSays returns what a command of the agent prints.
func (x *incidents) agentSays(args ...string) string {
	x.t.Helper()
	out, err := exec.Command(program(x.t, x.program), append(args, "--root-dir", kubeletRoot)...).CombinedOutput()
	if err != nil {
		x.t.Errorf("agent %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// expire waits until the API server has no events any more.
func (x *incidents) expire() {
	x.t.Helper()
	began, n := time.Now(), 0
	for end := began.Add(2 * eventTTL); time.Now().Before(end); time.Sleep(5 * time.Second) {
		var list v1.EventList
		x.must(x.get("/api/v1/namespaces/default/events", &list))
		n = 0
		for _, e := range list.Items {
			if _, ours := x.events[e.UID]; ours {
				n++
			}
		}
		if n == 0 {
			break
		}
	}
	x.t.Logf("of %d events, %d are left after %v (--event-ttl=%v)", len(x.events), n, time.Since(began).Round(time.Second), eventTTL)
}

// eventsOf returns the events of an incident's pod, and of the node if it is an incident of the node, each
// once.
func (x *incidents) eventsOf(i incident) string {
	var all []v1.Event
	for _, e := range x.events {
		near := e.LastTimestamp.Time.Sub(x.at[i.name]).Abs() < time.Minute
		if x.ofPod(e.InvolvedObject.Name, i.name) || i.node != "" && near && e.InvolvedObject.Kind == "Node" {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b v1.Event) int {
		return cmp.Or(a.FirstTimestamp.Compare(b.FirstTimestamp.Time), cmp.Compare(a.ResourceVersion, b.ResourceVersion))
	})
	var lines []string
	for _, e := range all {
		line := e.Reason + ": " + e.Message
		if e.InvolvedObject.Kind == "Node" {
			line = "Node " + line
		}
		if line = inOneLine(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// klogLine matches a line of the kubelet's log: level, message, the rest.
var klogLine = regexp.MustCompile(`^([IWEF])\d{4} [0-9:.]+ +\d+ [^\]]+\] "((?:[^"\\]|\\.)*)"(.*)$`)

var klogError = regexp.MustCompile(` err=("(?:[^"\\]|\\.)*")`)

// logOf returns the different messages about a pod in the program's log, with their level and error.
func (x *incidents) logOf(name string) string {
	var lines []string
	uids := map[string]bool{}
	for _, e := range x.events {
		if x.ofPod(e.InvolvedObject.Name, name) {
			uids[string(e.InvolvedObject.UID)] = true
		}
	}
	delete(uids, "")
	for line := range strings.Lines(x.logs.String() + x.log.String()) {
		line = strings.TrimSuffix(line, "\n")
		about := strings.Contains(line, `default/`+name+`"`) || strings.Contains(line, `default/`+name+"-"+x.cluster.node+`"`)
		for uid := range uids {
			about = about || strings.Contains(line, uid)
		}
		m := klogLine.FindStringSubmatch(line)
		if !about || m == nil {
			continue
		}
		said := m[1] + " " + m[2]
		if e := klogError.FindStringSubmatch(m[3]); e != nil {
			said += ": " + e[1]
		}
		if said = inOneLine(said); !slices.Contains(lines, said) {
			lines = append(lines, said)
		}
	}
	return strings.Join(lines, "\n")
}

// inOneLine shortens what is too long for the report.
func inOneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return s
}

// statusLine returns a pod's status in a line.
func statusLine(p *v1.Pod) string {
	if p == nil {
		return "gone"
	}
	out := []string{strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Reason)}
	if p.Status.Message != "" {
		out = append(out, inOneLine(p.Status.Message))
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			out = append(out, inOneLine(fmt.Sprintf("%s %s: %s", c.Type, c.Reason, c.Message)))
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		line := fmt.Sprintf("%s: restarts %d", c.Name, c.RestartCount)
		for _, s := range []struct {
			name string
			v1.ContainerState
		}{{"state", c.State}, {"last state", c.LastTerminationState}} {
			switch {
			case s.Running != nil:
				line += ", " + s.name + " running"
			case s.Waiting != nil:
				line += fmt.Sprintf(", %s waiting (%s %s)", s.name, s.Waiting.Reason, s.Waiting.Message)
			case s.Terminated != nil:
				line += fmt.Sprintf(", %s terminated (%s, exit code %d)", s.name, s.Terminated.Reason, s.Terminated.ExitCode)
			}
		}
		for _, r := range c.AllocatedResourcesStatus {
			for _, h := range r.Resources {
				line += fmt.Sprintf(", %s %s", r.Name, h.Health)
			}
		}
		out = append(out, inOneLine(line))
	}
	return strings.Join(out, "; ")
}

// report prints the answers, and writes them to the file of the flag.
func (x *incidents) report(programs []string, all map[string]map[string]*answer) {
	x.t.Helper()
	var b strings.Builder
	for _, i := range slices.Concat(together, alone) {
		fmt.Fprintf(&b, "## %s (%s)\n\n", i.what, i.name)
		for _, name := range programs {
			a := all[name][i.name]
			if a == nil {
				continue // it was not reached
			}
			fmt.Fprintf(&b, "### %s, at %s\n\n", filepath.Base(name), a.at.Format(time.TimeOnly))
			for _, part := range []struct{ title, text string }{
				{"agent why " + i.name + " --at", a.why}, {"agent why node --at", a.whyNode}, {"events", a.events}, {"status", a.status}, {"log", a.log},
			} {
				if part.text != "" && (name == kubelet || part.title != "log") {
					fmt.Fprintf(&b, "%s:\n\n```\n%s\n```\n\n", part.title, strings.TrimSpace(part.text))
				}
			}
		}
	}
	x.t.Log("\n" + b.String())
	if *incidentsReport != "" {
		x.must(os.WriteFile(*incidentsReport, []byte(b.String()), 0o600))
	}
}
