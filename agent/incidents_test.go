package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

// ender is a part that ends pods and knows the node's state, as eviction and devices do.
type ender struct{ host part.Host }

func (*ender) Name() string             { return "ender" }
func (e *ender) Join(h part.Host) error { e.host = h; return nil }

// faulty is a part that fails to prepare pods while it has an error.
type faulty struct{ err error }

func (*faulty) Name() string                                            { return "faulty" }
func (f *faulty) Prepare(context.Context, *v1.Pod, *observed.Pod) error { return f.err }

// incident is a node that lives through an incident.
type incident struct {
	*agenttest.Node
	t      *testing.T
	dir    string
	ender  *ender
	faulty *faulty
}

// start starts the next agent, in a boot of the machine.
func (n *incident) start(boot string) {
	n.t.Helper()
	r, err := record.New(record.Config{Dir: n.dir, Node: "node", Boot: boot})
	if err != nil {
		n.t.Fatal(err)
	}
	n.ender, n.faulty = &ender{}, &faulty{}
	n.Config.Parts = []part.Part{r, n.ender, n.faulty}
	n.Start()
}

func (n *incident) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// running returns the ID of the pod's container that runs.
func (n *incident) running() string {
	for _, p := range n.ender.host.Pods() {
		obs, err := n.ender.host.Observe(context.Background(), p.UID)
		if err != nil {
			n.t.Fatal(err)
		}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.State == observed.Running {
				return c.ID
			}
		}
	}
	n.t.Fatal("no container runs")
	return ""
}

// Whole agents live through incidents. Hours later, when the pod is gone, the answer about the time
// of each has these words.
func TestIncidents(t *testing.T) {
	for name, tc := range map[string]struct {
		live func(*incident, *v1.Pod)
		want []string
	}{
		"OOM kill": {func(n *incident, _ *v1.Pod) { n.Runtime.OOMKill(n.running()) },
			[]string{"restarted at ", "it was killed for using more than its memory limit of 64 MiB; the container had been started at "}},
		"exit": {func(n *incident, _ *v1.Pod) { n.Runtime.Exit(n.running(), 3) },
			[]string{"restarted at ", "it ended with exit code 3"}},
		"liveness probe": {func(n *incident, pod *v1.Pod) {
			p := pod.DeepCopy()
			p.UID = "with-a-probe"
			p.Spec.Containers[0].LivenessProbe = &v1.Probe{
				ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(1)}}, PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 1,
			}
			n.Want(p)
			n.wait(13 * time.Second)
		}, []string{"restarted at ", "the liveness probe failed twice, 127.0.0.1:1: connection refused, since "}},
		"eviction": {func(n *incident, pod *v1.Pod) {
			part.Record(n.ender.host, record.Entry{Fact: &record.Condition{Type: "MemoryPressure", On: true, Reason: "KubeletHasInsufficientMemory"}})
			grace := int64(1)
			if err := n.ender.host.End(n.t.Context(), pod, podlife.Cause{Kind: podlife.Evicted, Message: "The node was low on resource: memory.", Grace: &grace}); err != nil {
				n.t.Error(err)
			}
		}, []string{"ended at ", "it was evicted, as the node ran short (MemoryPressure since ", "The node was low on resource: memory"}},
		"preemption": {func(n *incident, pod *v1.Pod) {
			if err := n.ender.host.End(n.t.Context(), pod, podlife.Cause{Kind: podlife.Preempted}); err != nil {
				n.t.Error(err)
			}
		}, []string{"it was preempted: it made room for a critical pod"}},
		"shutdown": {func(n *incident, pod *v1.Pod) {
			if err := n.ender.host.End(n.t.Context(), pod, podlife.Cause{Kind: podlife.Shutdown}); err != nil {
				n.t.Error(err)
			}
		}, []string{"it was ended, as the machine goes down"}},
		"reboot": {func(n *incident, _ *v1.Pod) {
			id := n.running()
			n.Stop()
			n.Runtime.Kill(id)
			n.start("second")
		}, []string{"restarted at ", "the machine went down", "the machine was started again"}},
		"restart of the agent": {func(n *incident, _ *v1.Pod) {
			n.Stop()
			n.wait(time.Second)
			n.start("first")
		}, []string{"the agent was stopped; containers go on", "the agent was started again"}},
		"image gone": {func(n *incident, pod *v1.Pod) {
			p := pod.DeepCopy()
			p.UID, p.Spec.Containers[0].Image = "other-image", "localhost/app:2"
			n.Want(p)
		}, []string{"its definition was changed: image of container app from localhost/app:1 to localhost/app:2", "image localhost/app:2 of container app could not be pulled: "}},
		"manifest edited and back": {func(n *incident, pod *v1.Pod) {
			p := pod.DeepCopy()
			p.UID = "edited"
			n.Want(p)
			n.wait(15 * time.Second)
			n.Want(pod)
		}, []string{"its definition was changed back to an earlier one", "restarted at ", "container app ended after 60m: its definition was changed"}},
		"rejection": {func(n *incident, pod *v1.Pod) {
			p := pod.DeepCopy()
			p.UID = "large"
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}
			n.Want(p)
		}, []string{"the node rejected it: OutOfcpu"}},
		"part that fails": {func(n *incident, pod *v1.Pod) {
			n.faulty.err = podlife.WithReason("NoLicence", errors.New("dial tcp 10.0.0.1:7: i/o timeout"))
			p := pod.DeepCopy()
			p.UID = "another"
			n.Want(p)
			n.wait(15 * time.Second)
		}, []string{"it could not be synced: NoLicence (timed out)"}},
		"runtime that cannot start": {func(n *incident, _ *v1.Pod) {
			n.Runtime.Fail("StartContainer", errors.New("no space left on device"))
			n.Runtime.Exit(n.running(), 1)
			n.wait(time.Second)
		}, []string{"it could not be synced: RunContainerError (no space left)"}},
		"runtime away": {func(n *incident, _ *v1.Pod) {
			n.Runtime.Fail("ListPodSandbox", errors.New("connection refused"))
			n.wait(6 * time.Minute) // longer than between two lists
			n.Runtime.Fail("ListPodSandbox", nil)
		}, []string{"the container runtime did not answer: connection refused", "the container runtime answered again"}},
		"removal": {func(n *incident, _ *v1.Pod) { n.Want() }, []string{"it was removed from its source (test)"}},
		"device lost": {func(n *incident, _ *v1.Pod) {
			part.Record(n.ender.host, record.Entry{Fact: &record.Plugin{Name: "example.com/gpu", Gone: true}})
		}, []string{"the plugin of example.com/gpu went away"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &incident{Node: agenttest.New(t), t: t, dir: filepath.Join(t.TempDir(), "record")}
				n.start("first")
				pod := agenttest.Pod("web", agenttest.Container("app"))
				pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
				n.Want(pod)
				n.wait(time.Hour)
				begin := time.Now()
				tc.live(n, pod)
				n.wait(10 * time.Second)
				within := time.Since(begin)
				n.wait(time.Minute)
				n.Want()
				n.wait(3 * time.Hour)
				past, err := agent.Past(n.dir, local.PastQuery{Name: "web", At: begin, Within: within})
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(past.Lines(time.Now()), "\n")
				for _, want := range tc.want {
					if !strings.Contains(text, want) {
						t.Errorf("no %q in:\n%s", want, text)
					}
				}
				entries, _, err := agent.Recorded(n.dir, "", "web")
				if err != nil {
					t.Fatal(err)
				}
				steps := record.Replay(entries)
				for _, s := range steps {
					if len(s.Differences) > 0 {
						t.Errorf("%s was decided otherwise: %q", s.Decision.Result.String(), s.Differences)
					}
				}
				t.Logf("%d entries, %d decisions\n%s", len(entries), len(steps), text)
			})
		})
	}
}
