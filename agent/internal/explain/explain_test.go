package explain_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/agent/internal/explain"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/volumemgr"
)

var now = time.Date(2030, 1, 2, 8, 38, 37, 0, time.Local)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// broken returns the facts of a pod shop/p-vm of one container c, in the given phase, with the
// condition Ready False.
func broken(phase v1.PodPhase, st v1.ContainerStatus) *explain.Facts {
	st.Name = "c"
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p-vm", UID: "uid-p"},
		Spec:       v1.PodSpec{NodeName: "vm", Containers: []v1.Container{{Name: "c", Image: "localhost/busybox:1"}}},
		Status: v1.PodStatus{
			Phase: phase, ContainerStatuses: []v1.ContainerStatus{st},
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Message: "containers with unready status: [c]"}},
		},
	}
	return &explain.Facts{
		Now: now, Pod: p, Manifest: "/srv/m/p.yaml",
		Worker: &podworker.Status{UID: p.UID, Pod: p, Kind: podworker.Sync, Since: now.Add(-time.Minute)},
	}
}

// well returns the facts of a pod that is ready.
func well() *explain.Facts {
	f := broken(v1.PodRunning, v1.ContainerStatus{Ready: true, Started: new(true), State: running(time.Hour)})
	f.Pod.Status.Conditions[0].Status = v1.ConditionTrue
	return f
}

func running(for_ time.Duration) v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(for_)}}
}

func waiting(reason, message string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func terminated(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "test://last", ExitCode: code, Reason: reason, StartedAt: ago(12 * time.Second), FinishedAt: ago(7 * time.Second)}}
}

// loop returns the status of a container in a crash loop.
func loop(code int32, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{
		RestartCount: 4, State: waiting("CrashLoopBackOff", "back-off 40s restarting failed container=c pod=p-vm_shop(uid-p)"),
		LastTerminationState: terminated(code, reason),
	}
}

func event(f *explain.Facts, container, reason, message string, count int32, last time.Duration) {
	f.Events = append(f.Events, v1.Event{
		InvolvedObject: v1.ObjectReference{Namespace: "shop", Name: "p-vm", UID: "uid-p", FieldPath: podmeta.FieldPath(f.Pod, container)},
		Reason:         reason, Message: message, Count: count, FirstTimestamp: ago(last + 3*time.Minute), LastTimestamp: ago(last),
	})
}

// do changes facts and returns them.
func do(f *explain.Facts, change func(f *explain.Facts, c *v1.Container, st *v1.ContainerStatus)) *explain.Facts {
	change(f, &f.Pod.Spec.Containers[0], &f.Pod.Status.ContainerStatuses[0])
	return f
}

type facts = explain.Facts

// faults are mistakes that people make, and what the answer has to say of them.
var faults = []struct {
	name  string
	facts *explain.Facts
	want  []string
}{
	{"1 the registry does not exist", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ImagePullBackOff", "Back-off pulling image")}), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.Image = "registry.invalid/x:1"
		f.Pulls = []images.Pull{{Image: "registry.invalid/x:1", Registry: "registry.invalid", State: images.HeldBack, Try: 3, RetryAt: now.Add(20 * time.Second),
			LastError: "RegistryUnavailable: rpc error: code = Unavailable desc = RegistryUnavailable: registry.invalid cannot be reached: no such host"}}
	}), []string{"does not run: image registry.invalid/x:1 from registry.invalid cannot be pulled: registry.invalid cannot be reached: no such host", "next pull (try 3): 08:38:57 (in 20s)", "agent images load", "spec.containers[0].image", "/srv/m/p.yaml"}},
	{"1 the registry does not exist, by the status alone", broken(v1.PodPending, v1.ContainerStatus{State: waiting("ErrImagePull", "no such host")}),
		[]string{"image localhost/busybox:1 of container c cannot be pulled: no such host", "agent images load"}},
	{"1a the image of an ephemeral container is not there", do(well(), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pulls = []images.Pull{{Image: "tools:1", Registry: "docker.io", State: images.HeldBack, Try: 2, RetryAt: now.Add(20 * time.Second), LastError: "no such host"}}
	}), []string{"runs, without an ephemeral container: image tools:1 from docker.io cannot be pulled: no such host"}},
	{"1d the image is being pulled", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ContainerCreating", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pulls = []images.Pull{{Image: "localhost/x:1", Registry: "localhost", State: images.Pulling, Since: now.Add(-8 * time.Second), Received: 12<<20 + 1, Total: 40 << 20}}
	}), []string{"is not up yet: it waits for image localhost/x:1 from localhost: the runtime pulls it: 12 of 40 MiB, for 8s"}},
	{"1e the image is being pulled, and the runtime says nothing", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ContainerCreating", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pulls = []images.Pull{{Image: "localhost/x:1", Registry: "localhost", State: images.Pulling, Since: now.Add(-8 * time.Second)}}
	}), []string{"it waits for image localhost/x:1 from localhost: the runtime pulls it, for 8s"}},
	{"1f the signature is not accepted", broken(v1.PodPending, v1.ContainerStatus{State: waiting("SignatureValidationFailed", "SignatureValidationFailed: x is refused by p.yaml, line 2")}),
		[]string{"image localhost/busybox:1 of container c cannot be pulled: x is refused by p.yaml, line 2", "sign localhost/busybox:1"}},
	{"1b no pull is allowed", broken(v1.PodPending, v1.ContainerStatus{State: waiting("ErrImageNeverPull", "x")}), []string{"is not on the node", "imagePullPolicy is Never", "agent images load"}},
	{"1c no name of an image", broken(v1.PodPending, v1.ContainerStatus{State: waiting("InvalidImageName", "invalid reference format")}), []string{"localhost/busybox:1", "is no name of an image: invalid reference format", "spec.containers[0].image"}},
	{"2 the program exits", do(broken(v1.PodRunning, loop(3, "Error")), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.LastWords = func(string, bool) string { return "starting\ncannot open /data/db: no such file\n" }
		f.Worker.NextAt, f.Worker.NextReason = now.Add(33*time.Second), "CrashLoopBackOff"
		f.Worker.LastError = `container "c": back-off 40s restarting failed container=c pod=p-vm_shop(uid-p)`
	}), []string{"does not run: container c has ended 5 times, last after 5s at 08:38:30, with exit code 3", "its last words: cannot open /data/db: no such file", "next start: 08:39:10 (in 33s)", "agent logs p-vm -n shop", "/srv/m/p.yaml"}},
	{"2b the program exits with success", broken(v1.PodRunning, loop(0, "Completed")), []string{"exit code 0", "spec.restartPolicy", "OnFailure"}},
	{"2c the program is killed", broken(v1.PodRunning, loop(137, "Error")), []string{"exit code 137", "SIGKILL"}},
	{"3 the readiness probe fails", do(broken(v1.PodRunning, v1.ContainerStatus{Started: new(true), State: running(4 * time.Minute)}), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
		event(f, "c", "Unhealthy", `Readiness probe failed: Get "http://10.214.4.4:8080/healthz": dial tcp 10.214.4.4:8080: connect: connection refused`, 21, 8*time.Second)
	}), []string{"runs, but is not ready: the readiness probe of container c has failed 21 times in 3m8s, since 08:35:29", "GET http://10.214.4.4:8080/healthz: connection refused", "agent logs p-vm", "spec.containers[0].readinessProbe"}},
	{"3 the readiness probe has not succeeded", do(broken(v1.PodRunning, v1.ContainerStatus{Started: new(true), State: running(4 * time.Minute)}), func(_ *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}
	}), []string{"not ready", "the readiness probe of container c has not succeeded since its start at 08:34:37", "TCP POD:8080"}},
	{"3a the startup probe fails", do(broken(v1.PodRunning, v1.ContainerStatus{Started: new(false), State: running(time.Minute)}), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", "/up"}}}}
		event(f, "c", "Unhealthy", "Startup probe failed: no /up yet", 2, time.Second)
	}), []string{"is not up yet: the startup probe of container c has failed 2 times", "exec test -e /up: no /up yet"}},
	{"3b the liveness probe fails", do(broken(v1.PodRunning, loop(137, "Error")), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/alive", Port: intstr.FromInt32(80)}}}
		event(f, "c", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500", 12, 8*time.Second)
		f.EndedFor = func(id string) podlife.Kind { return map[string]podlife.Kind{"last": podlife.LivenessFailed}[id] }
	}), []string{"container c was ended 5 times", "its liveness probe failed", "GET http://POD:80/alive: HTTP probe failed with statuscode: 500", "livenessProbe"}},
	{"4 a ConfigMap is missing", broken(v1.PodPending, v1.ContainerStatus{State: waiting("CreateContainerConfigError", `spec.containers[0].envFrom[0].configMapRef: configmap "settings" not found`)}),
		[]string{"does not run: container c cannot be made: ", `configmap "settings" not found`, `put a ConfigMap "settings" of namespace shop into the directory of /srv/m/p.yaml`}},
	{"5 no such program", do(broken(v1.PodRunning, v1.ContainerStatus{RestartCount: 4, State: waiting("CrashLoopBackOff", "back-off 40s"), LastTerminationState: terminated(128, "StartError")}), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.Command = []string{"nosuch", "--now"}
		event(f, "c", "Failed", `Error: failed to start container c: runc create failed: unable to start container process: error during container init: exec "nosuch": not found in PATH`, 4, 6*time.Second)
	}), []string{`container c cannot be started: exec "nosuch": not found in PATH`, "its command is nosuch --now", "spec.containers[0].command"}},
	{"6 too large", do(broken(v1.PodFailed, v1.ContainerStatus{}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Worker = nil
		f.Answer = &part.Rejection{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 64000, used: 0, capacity: 2000"}
		f.Shortages = []string{"wants 64 CPUs, and 1.84 are free", "wants 500Gi of memory, and 19Gi are free"}
	}), []string{"does not run: the node rejected it: OutOfcpu: it wants 64 CPUs, and 1.84 are free", "it also wants 500Gi of memory, and 19Gi are free", "spec.containers[].resources.requests"}},
	{"7a the host port is taken by a pod", do(broken(v1.PodFailed, v1.ContainerStatus{}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Worker = nil
		f.Answer = &part.Rejection{Reason: "NodePorts", Message: "host port 18080/TCP is taken by pod shop/f7a-port-vm"}
	}), []string{"host port 18080/TCP is taken by pod shop/f7a-port-vm", "hostPort"}},
	{"7b the port is taken", do(broken(v1.PodRunning, loop(1, "Error")), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pod.Spec.HostNetwork = true
		f.LastWords = func(string, bool) string { return "httpd: bind: Address already in use" }
		f.Pod.Spec.Containers[0].Command = []string{"httpd", "-p", "127.0.0.1:18080"}
		f.Holder = func(port int32) string {
			if port == 18080 {
				return "process 812 (nginx)"
			}
			return ""
		}
	}), []string{"exit code 1", "Address already in use", "port 18080 of the node is held by process 812 (nginx)"}},
	{"8a a path of the node is missing", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ContainerCreating", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Volumes = []volumemgr.Status{{Names: []string{"d"}, Plugin: "kubernetes.io/host-path", State: volumemgr.StateWanted, Since: now.Add(-time.Minute), Failures: 7, First: "/nosuch: no such directory", Last: "/nosuch: no such directory", Next: now.Add(10 * time.Second)}}
	}), []string{"is not up yet: it waits for volume d", "since 08:37:37", "failed 7 times", "/nosuch: no such directory", "next try: 08:38:47 (in 10s)", "make the path", "DirectoryOrCreate"}},
	{"8b a claim is missing", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ContainerCreating", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Worker.LastError = `persistentvolumeclaim "data" not found`
	}), []string{`is not up yet: persistentvolumeclaim "data" not found`, `put a PersistentVolumeClaim "data" of namespace shop into`}},
	{"8b a claim is missing, as volumes say it", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("ContainerCreating", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Worker.LastError, f.Worker.Failures = `mount volumes: volume "d": claim shop/data: not found`, 6
	}), []string{`claim shop/data: not found`, "tried 6 times", `put a PersistentVolumeClaim "data" of namespace shop into`}},
	{"9 the node is cordoned", do(broken(v1.PodPending, v1.ContainerStatus{}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Worker = nil
		f.Pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: "the node is cordoned: kubectl uncordon vm"}}
	}), []string{"is not up yet", "the node is cordoned", "kubectl uncordon vm"}},
	{"10 evicted again and again", do(well(), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		event(f, "", "Evicted", "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". ", 5, 12*time.Second)
	}), []string{"runs again: it was evicted 5 times in 3m12s", "last at 08:38:25", `volume "d" exceeds the limit "5Mi"`, "sizeLimit"}},
	{"11 out of memory", do(broken(v1.PodRunning, loop(137, "OOMKilled")), func(f *facts, c *v1.Container, _ *v1.ContainerStatus) {
		c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}
		event(f, "", "OOMKilling", "Process hog in container c of pod p-vm was killed by the kernel: a memory limit was reached (the container's is 16Mi; the process had 15Mi)", 4, 7*time.Second)
	}), []string{"container c was killed 5 times", "for using more than its memory limit of 16Mi", "the process had 15Mi", "spec.containers[0].resources.limits.memory"}},
	{"12 an init container waits", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("PodInitializing", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pod.Spec.InitContainers = []v1.Container{{Name: "done"}, {Name: "wait-db"}}
		f.Pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "done", State: terminated(0, "Completed")}, {Name: "wait-db", State: running(39 * time.Second)}}
		f.LastWords = func(c string, _ bool) string { return map[string]string{"wait-db": "waiting for db"}[c] }
	}), []string{"is not up yet: init container wait-db has been running for 39s; c begins after its end", "its last words: waiting for db", "agent logs p-vm -n shop -c wait-db -f"}},
	{"12b an init container fails", do(broken(v1.PodPending, v1.ContainerStatus{State: waiting("PodInitializing", "")}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pod.Spec.InitContainers = []v1.Container{{Name: "migrate"}}
		st := loop(9, "Error")
		st.Name = "migrate"
		f.Pod.Status.InitContainerStatuses = []v1.ContainerStatus{st}
	}), []string{"init container migrate has ended 5 times", "exit code 9", "-c migrate"}},
	{"13 the new manifest has a mistake", do(well(), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Problems = []local.Problem{{Source: "file", File: "/srv/m/p.yaml", Document: 1, Line: 11, Reason: "a [ is not closed", Kept: true}}
	}), []string{"/srv/m/p.yaml:11 has a mistake, so that the version before it runs: a [ is not closed", "correct /srv/m/p.yaml:11"}},
	{"14 it is being ended", do(well(), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
		f.Pod.DeletionTimestamp = &metav1.Time{Time: now}
		f.Worker.Kind, f.Worker.Doing = podworker.Terminating, "stopping its containers"
		f.Worker.TerminatingAt, f.Worker.EndsBy = now.Add(-5*time.Second), now.Add(25*time.Second)
	}), []string{"is ending: its end was asked for at 08:38:32", "until 08:39:02", "30s of grace"}},
}

func TestFaultsHaveTheirCause(t *testing.T) {
	for _, tc := range faults {
		why := explain.Pod(tc.facts)
		text := strings.Join(why.Lines(now), "\n")
		if testing.Verbose() {
			t.Logf("%s:\n%s", tc.name, text)
		}
		if why.Good || strings.Contains(text, "as it should be") || strings.Contains(text, "rpc error") || strings.Contains(text, "back-off 40s") {
			t.Errorf("%s: good is %t:\n%s", tc.name, why.Good, text)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in:\n%s", tc.name, want, text)
			}
		}
	}
}

// Each kind of cause has its words, whether it is of a pod or of a container.
func TestCausesHaveTheirWords(t *testing.T) {
	ended := func(c podlife.Cause) *explain.Facts {
		f := broken(v1.PodFailed, v1.ContainerStatus{State: terminated(137, "Error")})
		f.Cause, f.Worker.Kind = c, podworker.Terminated
		return f
	}
	killed := func(why podlife.Kind) *explain.Facts {
		f := broken(v1.PodRunning, loop(137, "Error"))
		f.EndedFor = func(id string) podlife.Kind { return map[string]podlife.Kind{"last": why}[id] }
		return f
	}
	answered := func(r part.Rejection) *explain.Facts {
		f := broken(v1.PodPending, v1.ContainerStatus{})
		f.Worker, f.Answer = nil, &r
		return f
	}
	for _, tc := range []struct {
		kind  podlife.Kind
		facts *explain.Facts
		want  []string
	}{
		{podlife.Evicted, ended(podlife.Cause{Kind: podlife.Evicted, Message: "The node was low on resource: memory."}), []string{"has ended: it was evicted, as the node ran short: The node was low on resource: memory.", "agent why node"}},
		{podlife.OverLimit, ended(podlife.Cause{Kind: podlife.OverLimit, Message: `Usage of EmptyDir volume "d" exceeds the limit "5Mi".`}), []string{"its own limit", "5Mi", "sizeLimit"}},
		{podlife.Preempted, ended(podlife.Cause{Kind: podlife.Preempted}), []string{"preempted", "critical pod", "priorityClassName"}},
		{podlife.Shutdown, ended(podlife.Cause{Kind: podlife.Shutdown}), []string{"the machine goes down", "begins again"}},
		{podlife.DeadlineExceeded, do(ended(podlife.Cause{Kind: podlife.DeadlineExceeded}), func(f *facts, _ *v1.Container, _ *v1.ContainerStatus) {
			f.Pod.Spec.ActiveDeadlineSeconds = new(int64(30))
		}), []string{"longer than its spec.activeDeadlineSeconds of 30"}},
		{podlife.VolumesExhausted, ended(podlife.Cause{Kind: podlife.VolumesExhausted, Message: "driver d has 3 of 3"}), []string{"no more volumes of a CSI driver", "driver d has 3 of 3", "remove a pod"}},
		{podlife.Rejected, answered(part.Rejection{Reason: "NodeAffinity", Message: "Predicate NodeAffinity failed"}), []string{"does not run: the node rejected it: NodeAffinity", "spec.nodeSelector"}},
		{podlife.Waits, answered(part.Rejection{Reason: "OutOfcpu", Message: "it waits for the end of shop/other", RetryUntil: now.Add(time.Minute)}), []string{"it waits for room on the node, until 08:39:37 (OutOfcpu: it waits for the end of shop/other)", "make room"}},
		{podlife.Changed, killed(podlife.Changed), []string{"container c was ended 5 times", "its definition was changed"}},
		{podlife.LivenessFailed, killed(podlife.LivenessFailed), []string{"its liveness probe failed"}},
		{podlife.StartupFailed, killed(podlife.StartupFailed), []string{"its startup probe failed"}},
		{podlife.StateUnknown, killed(podlife.StateUnknown), []string{"could not tell its state"}},
		{podlife.HookFailed, killed(podlife.HookFailed), []string{"its postStart hook failed"}},
		{podlife.Resized, killed(podlife.Resized), []string{"resizePolicy wants a restart"}},
		{podlife.Surplus, killed(podlife.Surplus), []string{"ran beside a newer instance"}},
		{podlife.CrashLoop, broken(v1.PodRunning, loop(3, "Error")), []string{"has ended 5 times", "exit code 3"}},
		{podlife.RunFailed, broken(v1.PodPending, v1.ContainerStatus{State: waiting("RunContainerError", "no space left on device")}), []string{"cannot be started: no space left on device"}},
		{"", ended(podlife.Cause{Reason: "Licence", Message: "3 of 3 seats are taken"}), []string{"it was ended (Licence): 3 of 3 seats are taken"}},
		{podlife.HookFailed, broken(v1.PodPending, v1.ContainerStatus{State: waiting("PostStartHookError", "exit code 7")}), []string{"its postStart hook failed: exit code 7", "lifecycle.postStart"}},
		{"", broken(v1.PodFailed, v1.ContainerStatus{State: terminated(2, "Error")}), []string{"has ended: container c has ended after 5s at 08:38:30 with exit code 2"}},
	} {
		why := explain.Pod(tc.facts)
		text := strings.Join(why.Lines(now), "\n")
		if why.Good {
			t.Errorf("%s: as it should be:\n%s", tc.kind, text)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in:\n%s", tc.kind, want, text)
			}
		}
	}
}

func TestGoodPods(t *testing.T) {
	succeeded := broken(v1.PodSucceeded, v1.ContainerStatus{State: terminated(0, "Completed")})
	long := well()
	long.Pod.Status.ContainerStatuses[0].RestartCount = 1
	long.Pod.Status.ContainerStatuses[0].LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, FinishedAt: ago(time.Hour)}}
	event(long, "", "Evicted", "x", 1, time.Hour)
	for _, f := range []*explain.Facts{well(), succeeded, long} {
		if why := explain.Pod(f); !why.Good || why.Cause != "" || why.WaitingFor != "" || len(why.Do) > 0 {
			t.Errorf("a pod that is as it should be: %+v", why)
		}
	}
}

// What happened in the last minutes is told although the pod runs again.
func TestRestartsAreTold(t *testing.T) {
	f := well()
	f.Pod.Status.ContainerStatuses[0].RestartCount = 1
	f.Pod.Status.ContainerStatuses[0].LastTerminationState = terminated(3, "Error")
	f.LastWords = func(_ string, previous bool) string { return map[bool]string{true: "of the one before"}[previous] }
	text := strings.Join((&[]local.Why{explain.Pod(f)}[0]).Lines(now), "\n")
	for _, want := range []string{"runs again: container c has ended after 5s at 08:38:30 with exit code 3", "its last words: of the one before", "agent logs p-vm -n shop -p"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// A pod that is not ready is never as it should be, whatever else is known of it, unless it has
// succeeded: the page paints it red.
func TestNoBrokenPodIsGood(t *testing.T) {
	states := []v1.ContainerState{{}, running(time.Minute), waiting("", ""), waiting("ContainerCreating", ""), waiting("Other", ""), terminated(0, "Completed"), terminated(1, "Error")}
	for _, phase := range []v1.PodPhase{"", v1.PodPending, v1.PodRunning, v1.PodFailed, v1.PodUnknown} {
		for _, st := range states {
			for _, last := range states {
				for _, worker := range []bool{true, false} {
					f := broken(phase, v1.ContainerStatus{State: st, LastTerminationState: last})
					if !worker {
						f.Worker = nil
					}
					if why := explain.Pod(f); why.Good || why.Cause == "" || strings.Contains(why.Summary(), "as it should be") {
						t.Errorf("phase %q, state %+v, worker %t: %q", phase, st, worker, why.Summary())
					}
				}
			}
		}
	}
}
