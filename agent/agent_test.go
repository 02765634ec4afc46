package agent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/pressure"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/fit"
	nodeblock "github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

const image = "localhost/app:1"

// fakeSource is a source whose pods the test sets.
type fakeSource struct {
	snapshots chan podmgr.Snapshot
	kind      podmgr.Kind
}

func (*fakeSource) Name() string        { return "file" }
func (s *fakeSource) Kind() podmgr.Kind { return s.kind }

func (s *fakeSource) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap := <-s.snapshots:
			deliver(snap)
		}
	}
}

// node is one machine: a runtime and directories that outlive the agents.
type node struct {
	t    *testing.T
	rt   *critest.Runtime
	root string
	want []*v1.Pod
	kind podmgr.Kind // of the pods that are wanted

	pulls int    // at a time
	cpus  string // 2
	sink  statusmgr.Sink

	cluster *cluster // none

	placement fit.PlacementConfig
	admitters []part.Part
	more      []podmgr.Source // beside the test's own
	metrics   prometheus.Registerer
	gc        pressure.CollectionConfig
	devices   *fakeDevices // nil: none
	claims    *fakeClaims  // nil: none
	eviction  *pressure.EvictionConfig
	shutdown  *lifecycle.ShutdownConfig
	measured  *measured            // nil: the runtime measures nothing
	hung      *agenttest.HungStore // nil: the parts' disk answers
	parts     []part.Part          // beside those
	configure func(*agent.Config)
}

func newNode(t *testing.T) *node {
	rt := critest.New()
	rt.AddImage(image)
	return &node{t: t, rt: rt, root: t.TempDir()}
}

// life is one life of an agent on a node.
type life struct {
	*agent.Agent
	has
	n      *node
	src    *fakeSource
	cancel context.CancelFunc
	ended  chan error
}

func (n *node) start() *life {
	n.t.Helper()
	l := &life{n: n, src: &fakeSource{snapshots: make(chan podmgr.Snapshot, 100), kind: n.kind}, ended: make(chan error, 1)}
	var rt criapi.RuntimeService = n.rt
	if n.devices != nil {
		rt = recording{rt, n.devices}
	}
	var images criapi.ImageManagerService = n.rt
	if n.measured != nil {
		rt, images = n.measured, n.measured
	}
	list := n.list(rt, images, &l.has)
	cfg := agent.Config{
		Node: nodeblock.Machine{Name: "n1", IPs: []string{"192.0.2.7"}, Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cmp.Or(n.cpus, "2")), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
		Paths:   agent.Paths{Root: filepath.Join(n.root, "root"), PodLogs: filepath.Join(n.root, "logs")},
		Runtime: rt, Images: agent.Images{Service: images, Parallel: n.pulls}, Sources: append([]podmgr.Source{l.src}, n.more...),
		DNS: agent.DNS{ResolvConf: "-"}, Status: agent.Status{Sink: n.sink}, Metrics: n.metrics, Parts: list,
	}
	if n.cluster != nil {
		cfg.Sources, cfg.Status.Sink = append(cfg.Sources, n.cluster), n.cluster
	}
	if n.configure != nil {
		n.configure(&cfg)
	}
	a, err := agent.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	l.Agent = a
	ctx, cancel := context.WithCancel(n.t.Context())
	l.cancel = cancel
	go func() { l.ended <- a.Run(ctx) }()
	l.tell()
	return l
}

// tell has the source say what the node wants.
func (l *life) tell() {
	snap := podmgr.Snapshot{ResourceClaims: l.n.claims.list()}
	for _, p := range l.n.want {
		snap.Pods = append(snap.Pods, p.DeepCopy())
	}
	l.src.snapshots <- snap
}

func (l *life) stop() {
	l.n.t.Helper()
	l.cancel()
	if err := <-l.ended; err != nil {
		l.n.t.Errorf("Run: %v", err)
	}
}

func newPod(name string, containers ...v1.Container) *v1.Pod {
	grace := int64(10)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: containers,
		},
	}
	return p
}

func runs(name string, args ...string) v1.Container {
	if len(args) == 0 {
		args = []string{"sleep", "forever"}
	}
	return v1.Container{Name: name, Image: image, ImagePullPolicy: v1.PullIfNotPresent, Args: args}
}

// settle lets everything happen that happens without waiting for anything but
// short timers.
func settle() {
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

func (l *life) pod(name string) *v1.Pod {
	for _, p := range l.Pods() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (l *life) wantPhase(name string, phase v1.PodPhase) {
	l.n.t.Helper()
	p := l.pod(name)
	if p == nil || p.Status.Phase != phase {
		l.n.t.Fatalf("pod %s: %+v, want phase %s", name, p, phase)
	}
}

// containers counts the instances of every container, and how many run.
func (n *node) containers() (all map[string]int, running map[string]int) {
	all, running = map[string]int{}, map[string]int{}
	list, err := n.rt.ListContainers(context.Background(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, c := range list {
		key := c.GetLabels()["io.kubernetes.pod.name"] + "/" + c.GetMetadata().GetName()
		all[key]++
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[key]++
		}
	}
	return all, running
}

func (n *node) id(name string) string {
	list, _ := n.rt.ListContainers(context.Background(), nil)
	for _, c := range list {
		if c.GetMetadata().GetName() == name && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return c.GetId()
		}
	}
	n.t.Fatalf("no container %s runs", name)
	return ""
}

// wantNothingLeft checks that no trace of any pod is left.
func (n *node) wantNothingLeft() {
	n.t.Helper()
	sandboxes, _ := n.rt.ListPodSandbox(context.Background(), nil)
	containers, _ := n.rt.ListContainers(context.Background(), nil)
	if len(sandboxes)+len(containers) > 0 {
		n.t.Errorf("%d sandboxes and %d containers are left", len(sandboxes), len(containers))
	}
	for _, dir := range []string{"root/pods", "root/crashloops", "logs", "containers"} {
		if entries, err := os.ReadDir(filepath.Join(n.root, dir)); err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "agent.lock" }) {
			n.t.Errorf("%s still has %v", dir, entries)
		}
	}
}

func TestPodWithInitAndSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := newPod("web", runs("a"), runs("b"))
		always := v1.ContainerRestartPolicyAlways
		sidecar := runs("side")
		sidecar.RestartPolicy = &always
		p.Spec.InitContainers = []v1.Container{runs("init", "sleep", "5s", "exit", "0"), sidecar}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		n.want = []*v1.Pod{p}
		l := n.start()
		settle()
		l.wantPhase("web", v1.PodPending)
		if _, running := n.containers(); len(running) != 1 || running["web/init"] != 1 {
			t.Errorf("running beside init: %v", running)
		}
		time.Sleep(5 * time.Second)
		settle()
		l.wantPhase("web", v1.PodRunning)
		st := l.pod("web").Status
		if len(st.ContainerStatuses) != 2 || !st.ContainerStatuses[0].Ready || st.PodIP == "" || st.HostIP != "192.0.2.7" {
			t.Errorf("status %+v", st)
		}
		if why := l.Why(l.pod("web")); !why.Good {
			t.Errorf("why: %q", why.Summary())
		}
		n.want = nil
		l.tell()
		settle()
		n.wantNothingLeft()
		if pods := l.Pods(); len(pods) != 0 {
			t.Errorf("%d pods are still shown", len(pods))
		}
		l.stop()
	})
}

func TestDeadContainerIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		start := time.Now()
		n.rt.Kill(n.id("c"))
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Errorf("%v after its death nothing runs", time.Since(start))
		}
		settle()
		if st := l.pod("p").Status.ContainerStatuses[0]; st.RestartCount != 1 || st.LastTerminationState.Terminated == nil ||
			st.LastTerminationState.Terminated.ExitCode != 137 {
			t.Errorf("status %+v", st)
		}
		// The second death has to wait.
		n.rt.Kill(n.id("c"))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		st := l.pod("p").Status.ContainerStatuses[0]
		if st.State.Waiting == nil || st.State.Waiting.Reason != "CrashLoopBackOff" {
			t.Errorf("state %+v, want CrashLoopBackOff", st.State)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Error("it was not restarted after 10 s")
		}
		l.stop()
	})
}

// The next agent knows how far a crash loop was, and not only how often the
// container was restarted in its life.
func TestRestartOfTheAgentInACrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		if _, err := os.Stat(filepath.Join(n.root, "root", "crashloops")); !os.IsNotExist(err) {
			t.Errorf("a directory was made for nothing: %v", err)
		}
		n.rt.Kill(n.id("c")) // restarted at once
		time.Sleep(11 * time.Minute)
		n.rt.Kill(n.id("c")) // it had recovered
		settle()
		n.rt.Kill(n.id("c")) // it waits for 10 s
		time.Sleep(4 * time.Second)
		l.stop()
		l = n.start()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 0 {
			t.Error("the next agent restarted it after 9 s")
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Error("the next agent did not restart it after 10 s")
		}
		// A pod that goes while no agent is there is forgotten too.
		l.stop()
		n.want = nil
		l = n.start()
		time.Sleep(5 * time.Second)
		settle()
		n.wantNothingLeft()
		l.stop()
	})
}

// Log collectors find the containers' logs, and nothing of those that are gone.
func TestLogLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c", "out", "hello", "sleep", "forever"))}
		l := n.start()
		settle()
		links := filepath.Join(n.root, "containers") // beside the logs
		live := filepath.Join(links, "p_default_c-"+n.id("c")+".log")
		if b, err := os.ReadFile(live); err != nil || !strings.Contains(string(b), "hello") {
			t.Errorf("the link leads to %q, %v", b, err)
		}
		gone := filepath.Join(links, "p_default_c-0a1b2c.log")
		if err := os.Symlink(filepath.Join(n.root, "logs", "x", "c", "0.log"), gone); err != nil {
			t.Fatal(err)
		}
		target, err := os.Readlink(live)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(target, target+".1"); err != nil { // as when it is rotated
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := os.Lstat(gone); !os.IsNotExist(err) {
			t.Errorf("the link of a container that is gone is there: %v", err)
		}
		if _, err := os.Lstat(live); err != nil {
			t.Errorf("the link of a container that runs: %v", err)
		}
		n.want = nil
		l.tell()
		settle()
		n.wantNothingLeft()
		l.stop()
	})
}

func TestRestartOfTheAgentTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for i := range 10 {
			n.want = append(n.want, newPod(fmt.Sprint("p", i), runs("c")))
		}
		l := n.start()
		time.Sleep(5 * time.Second)
		l.stop()
		before, _ := n.containers()
		n.rt.ForgetCalls()
		for range 3 {
			l = n.start()
			settle()
			for _, p := range n.want {
				l.wantPhase(p.Name, v1.PodRunning)
			}
			l.stop()
		}
		after, running := n.containers()
		if len(after) != 10 || len(running) != 10 || len(before) != 10 {
			t.Errorf("containers before %v, after %v", before, after)
		}
		if c := n.rt.Calls("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"); len(c) != 0 {
			t.Errorf("restarts of the agent made calls: %v", c)
		}
	})
}

// A question about a container that ran before the agent waits until the runtime was asked about it.
func TestQuestionsWaitForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		want, err := l.LogPath(l.pod("p"), "c", false)
		if err != nil {
			t.Fatal(err)
		}
		l.stop()
		n.rt.Delay("ListPodSandbox", 3*time.Second)
		l = n.start()
		synctest.Wait() // it waits for the list
		if got, err := l.LogPath(newPod("p", runs("c")), "c", false); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		l.stop()
		release := n.rt.Hang("ListPodSandbox")
		l = n.start()
		synctest.Wait()
		if _, err := l.LogPath(newPod("p", runs("c")), "c", false); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
			t.Errorf("of a runtime that hangs: %v", err)
		}
		release()
		l.stop()
	})
}

// A pod that ends while no agent is there is noticed by the next one.
func TestDeathWhileNoAgentRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c")), newPod("gone", runs("g"))}
		l := n.start()
		settle()
		l.stop()
		n.rt.Kill(n.id("c"))
		n.want = n.want[:1]
		l = n.start()
		settle()
		if _, running := n.containers(); running["p/c"] != 1 || running["gone/g"] != 0 {
			t.Errorf("running: %v", running)
		}
		n.want = nil
		l.tell()
		time.Sleep(3 * time.Second)
		settle()
		n.wantNothingLeft()
		l.stop()
	})
}

// An agent that dies at any of its calls, before or after the call has done
// its work, leaves a state from which the next one goes on: no container runs
// twice, and nothing is left over in the end.
func TestDeathAtEveryCall(t *testing.T) {
	died := errors.New("the agent died here")
	for _, when := range []string{"before", "after"} {
		for at := 1; ; at++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				always := v1.ContainerRestartPolicyAlways
				side := runs("side")
				side.RestartPolicy = &always
				p := newPod("p", runs("a"), runs("b"))
				p.Spec.InitContainers = []v1.Container{runs("init", "exit", "0"), side}
				n.want = []*v1.Pod{p}
				var count atomic.Int64
				dead := make(chan struct{})
				fatal := func(c critest.Call) error {
					if c.Method == "GetContainerEvents" {
						return nil
					}
					switch i := count.Add(1); {
					case i < int64(at):
						return nil
					case i == int64(at):
						close(dead)
					}
					return died // a dead process hears no answer and makes no call
				}
				if when == "before" {
					n.rt.Around(fatal, nil)
				} else {
					n.rt.Around(func(critest.Call) error {
						if count.Load() >= int64(at) {
							return died
						}
						return nil
					}, fatal)
				}
				l := n.start()
				go func() {
					select {
					case <-dead:
						reached = true
						l.cancel()
					case <-t.Context().Done():
					}
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if !reached {
					n.rt.Around(nil, nil)
					l.stop()
					return
				}
				<-l.ended
				n.rt.Around(nil, nil)

				l = n.start()
				time.Sleep(15 * time.Second)
				synctest.Wait()
				l.wantPhase("p", v1.PodRunning)
				_, running := n.containers()
				for _, c := range []string{"p/a", "p/b", "p/side"} {
					if running[c] != 1 {
						t.Errorf("died %s call %d: %s runs %d times", when, at, c, running[c])
					}
				}
				n.want = nil
				l.tell()
				time.Sleep(30 * time.Second)
				synctest.Wait()
				n.wantNothingLeft()
				l.stop()
			})
			if !reached || t.Failed() {
				break
			}
		}
	}
}

func TestRuntimeAwayForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		n.rt.ForgetCalls()
		n.rt.Die()
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			p := l.pod("p")
			if p.Status.Phase != v1.PodRunning || !p.Status.ContainerStatuses[0].Ready {
				t.Fatalf("status flipped: %+v", p.Status)
			}
		}
		n.rt.Revive()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		l.wantPhase("p", v1.PodRunning)
		if c := n.rt.Calls("RunPodSandbox", "CreateContainer", "StopContainer"); len(c) != 0 {
			t.Errorf("the pod was touched: %v", c)
		}
		n.rt.Kill(n.id("c"))
		settle()
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Error("events are not heard after the runtime came back")
		}
		l.stop()
	})
}

func TestFailingSandboxDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		n.rt.Fail("RunPodSandbox", errors.New("no network"))
		l := n.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := len(n.rt.Calls("RunPodSandbox")); c < 4 || c > 10 {
			t.Errorf("%d tries in a minute", c)
		}
		if why := l.Why(l.pod("p")); why.LastError == "" || why.NextReason != "CreatePodSandboxError" {
			t.Errorf("why: %+v", why)
		}
		n.rt.Fail("RunPodSandbox", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantPhase("p", v1.PodRunning)
		l.stop()
	})
}

func TestRejectedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		big := newPod("big", runs("c"))
		big.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
		n.want = []*v1.Pod{big, newPod("small", runs("c"))}
		l := n.start()
		settle()
		l.wantPhase("small", v1.PodRunning)
		l.wantPhase("big", v1.PodFailed)
		if st := l.pod("big").Status; st.Reason != "OutOfcpu" {
			t.Errorf("reason %q", st.Reason)
		}
		if evs := l.Events(l.pod("big")); len(evs) != 1 || evs[0].Reason != "OutOfcpu" {
			t.Errorf("events %+v", evs)
		}
		l.stop()
	})
}

// reserver is a part that answers what it is told to, to who has asked it first whether he has to
// wait.
type reserver struct {
	host part.Host

	mu     sync.Mutex
	answer *part.Rejection // nil is yes
	held   int
	asked  map[types.UID]bool // since the pod's last end
}

func (*reserver) Name() string                 { return "reserver" }
func (r *reserver) Join(h part.Host) error     { r.host = h; return nil }
func (*reserver) Adopt(*v1.Pod)                {}
func (*reserver) Commit(context.Context) error { return nil }
func (r *reserver) Release()                   { r.add(-1) }
func (r *reserver) Stopped(_ context.Context, ref part.Ref) error {
	r.add(-r.add(0))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, ref.UID)
	return nil
}

func (r *reserver) Waits(pod *v1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = map[types.UID]bool{}
	}
	r.asked[pod.UID] = true
	return false
}

func (r *reserver) Reserve(_ context.Context, req part.Request) (part.Reservation, *part.Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !req.DryRun && !r.asked[req.Pod.UID] {
		return nil, &part.Rejection{Reason: "NotAsked", RetryUntil: time.Now().Add(time.Hour), Outside: true}
	}
	if r.answer != nil {
		return nil, r.answer
	}
	r.held++
	return r, nil
}

func (r *reserver) add(n int) (held int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	return r.held
}

func (r *reserver) say(answer *part.Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// A pod that was rejected, and then has to wait, does not begin without what it waits for.
func TestRejectedPodWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := newNode(t), &reserver{answer: &part.Rejection{Reason: "No"}}
		n.admitters = []part.Part{p}
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		l.wantPhase("p", v1.PodFailed)
		p.say(&part.Rejection{Reason: "NotYet", RetryUntil: time.Now().Add(time.Hour), Outside: true})
		n.want[0].Labels = map[string]string{"a": "b"}
		l.tell()
		settle()
		time.Sleep(2 * time.Minute)
		l.wantPhase("p", v1.PodPending)
		p.say(nil)
		p.host.Readmit()
		settle()
		l.wantPhase("p", v1.PodRunning)
		if p.add(0) != 1 {
			t.Errorf("%d reservations", p.add(0))
		}
		l.stop()
	})
}

// A static pod that comes back while it is being ended has its reservation made anew: what
// it had was taken back at its end. Its second end takes it back again.
func TestReturningPodIsReservedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := newNode(t), &reserver{}
		n.admitters = []part.Part{p}
		pod := newPod("p", runs("c", "ignore", "sleep", "forever"))
		n.want = []*v1.Pod{pod}
		l := n.start()
		settle()
		l.wantPhase("p", v1.PodRunning)
		n.want = nil
		l.tell()
		settle()
		n.want = []*v1.Pod{pod}
		l.tell()
		settle()
		if w := l.Why(l.pod("p")).WaitingFor; w != "stopping its containers" {
			t.Errorf("it waits for %q", w)
		}
		p.say(&part.Rejection{Reason: "NotYet", Message: "somebody else has it", RetryUntil: time.Now().Add(time.Hour), Outside: true})
		time.Sleep(15 * time.Second) // its grace period
		synctest.Wait()
		if _, running := n.containers(); len(running) > 0 || p.add(0) != 0 {
			t.Errorf("%v run, %d reservations", running, p.add(0))
		}
		p.say(nil)
		p.host.Readmit()
		settle()
		l.wantPhase("p", v1.PodRunning)
		if _, running := n.containers(); len(running) != 1 || p.add(0) != 1 {
			t.Errorf("%v run, %d reservations", running, p.add(0))
		}
		n.want = nil
		l.tell()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.wantNothingLeft(); p.add(0) != 0 {
			t.Errorf("%d reservations are left", p.add(0))
		}
		l.stop()
	})
}

// How far a pull is can be asked.
func TestWhyOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.pulls = 1
		n.rt.OfferImage("localhost/slow:1", "localhost/slow:2")
		release := n.rt.Hang("PullImage")
		of := func(name, image string) *v1.Pod {
			c := runs(name)
			c.Image = image
			return newPod(name, c)
		}
		n.want = []*v1.Pod{of("a", "localhost/slow:1"), of("b", "localhost/slow:2")}
		l := n.start()
		why := func(pod string) string { return l.Why(l.pod(pod)).WaitingFor }
		settle()
		time.Sleep(9500 * time.Millisecond)
		said := []string{why("a"), why("b")}
		for _, want := range []string{`image localhost/slow:\d from localhost: number 1 in the queue, for 10s`, `image localhost/slow:\d from localhost: the runtime pulls it, for 10s`} {
			if !slices.ContainsFunc(said, regexp.MustCompile(want).MatchString) {
				t.Errorf("%q, want %q", said, want)
			}
		}
		release()
		settle()
		l.wantPhase("a", v1.PodRunning)
		l.wantPhase("b", v1.PodRunning)
		n.want = append(n.want, of("c", "localhost/none:1"))
		l.tell()
		settle()
		if got := why("c"); !strings.Contains(got, "image localhost/none:1 from localhost: try 2 at ") {
			t.Errorf("a pull that failed: %q", got)
		}
		l.stop()
	})
}

func TestCompletedPodKeepsItsLogsUntilItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := newPod("job", runs("c", "out", "done", "exit", "0"))
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		n.want = []*v1.Pod{p}
		l := n.start()
		settle()
		l.wantPhase("job", v1.PodSucceeded)
		path, err := l.LogPath(l.pod("job"), "c", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		l.stop()
		l = n.start() // it does not run again
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		l.wantPhase("job", v1.PodSucceeded)
		if n := len(n.rt.Calls("StartContainer")); n != 1 {
			t.Errorf("started %d times", n)
		}
		n.want = nil
		l.tell()
		settle()
		n.wantNothingLeft()
		l.stop()
	})
}

func TestActiveDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := newPod("p", runs("c"))
		limit := int64(20)
		p.Spec.ActiveDeadlineSeconds = &limit
		n.want = []*v1.Pod{p}
		l := n.start()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		l.wantPhase("p", v1.PodRunning)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		l.wantPhase("p", v1.PodFailed)
		if st := l.pod("p").Status; st.Reason != "DeadlineExceeded" {
			t.Errorf("reason %q", st.Reason)
		}
		l.stop()
	})
}

// An agent that is refused has made nothing; one that is given the lock works under
// it, and leaves it to its owner.
func TestLockOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		root := filepath.Join(n.root, "root")
		if err := os.MkdirAll(root, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := nodeblock.LockRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-n.start().ended; !errors.Is(err, nodeblock.ErrLocked) {
			t.Errorf("without the lock: %v", err)
		}
		if made, err := os.ReadDir(root); len(made) != 1 || err != nil {
			t.Errorf("made %v, %v", made, err)
		}
		n.configure = func(c *agent.Config) { c.Lock = lock }
		l := n.start()
		settle()
		l.stop()
		if _, err := nodeblock.LockRoot(root); !errors.Is(err, nodeblock.ErrLocked) {
			t.Errorf("after Run its owner has lost the lock: %v", err)
		}
		lock.Release()
		if err := <-n.start().ended; !errors.Is(err, nodeblock.ErrReleased) {
			t.Errorf("with a lock that was released: %v", err)
		}
	})
}

// A pod of centuries does not end at once, nor does its end take two seconds.
func TestDurationsBeyondCentury(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n64 := range []int64{9223372037, 1e10, 1<<63 - 1} {
			n := newNode(t)
			p := newPod("p", runs("c", "trap", "0", "60s", "sleep", "forever")) // takes a minute to end
			p.Spec.ActiveDeadlineSeconds, p.Spec.TerminationGracePeriodSeconds = &n64, &n64
			n.want = []*v1.Pod{p}
			l := n.start()
			time.Sleep(time.Hour)
			synctest.Wait()
			l.wantPhase("p", v1.PodRunning)
			n.want = nil
			l.tell()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if _, running := n.containers(); running["p/c"] != 1 {
				t.Errorf("%d s of grace: killed after 30 s: %v", n64, running)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			n.wantNothingLeft()
			l.stop()
		}
	})
}

func TestSecondAgentIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		l := n.start()
		settle()
		second := n.start()
		if err := <-second.ended; !errors.Is(err, nodeblock.ErrLocked) {
			t.Errorf("second agent: %v, want ErrLocked", err)
		}
		l.stop()
	})
}
