package agent_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podworker"
)

// witness is a part with nearly every hook. It notes when it is called, and for which pod or
// container. What parts do is tested in their own packages.
type witness struct {
	host part.Host

	mu       sync.Mutex
	calls    []string
	names    map[types.UID]string       // of pods that have reserved something
	fails    map[string]error           // by hook
	rejected map[string]*part.Rejection // by pod
	over     bool
	restores time.Duration
}

func (w *witness) note(hook, of string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, strings.TrimSpace(hook+" "+of))
	return w.fails[hook]
}

func (w *witness) pod(hook string, pod *v1.Pod) error {
	w.mu.Lock()
	if w.names == nil {
		w.names = map[types.UID]string{}
	}
	if hook == "adopt" || hook == "reserve" {
		w.names[pod.UID] = pod.Name
	}
	w.mu.Unlock()
	return w.note(hook, pod.Name)
}

func (w *witness) name(uid types.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.names[uid], string(uid))
}

// set changes what the part answers.
func (w *witness) set(change func(*witness)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// took returns the calls of some hooks since the last time, each once, in the order of the first.
func (w *witness) took(hooks string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, c := range w.calls {
		hook, _, _ := strings.Cut(c, " ")
		if slices.Contains(strings.Fields(hooks), hook) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	w.calls = nil
	return strings.Join(out, ", ")
}

func (*witness) Name() string             { return "witness" }
func (w *witness) Join(h part.Host) error { w.host = h; return nil }

func (w *witness) Run(ctx context.Context) error {
	_ = w.note("run", "")
	<-ctx.Done()
	return w.note("end", "")
}

func (w *witness) Restore(context.Context) error {
	w.mu.Lock()
	takes := w.restores
	w.mu.Unlock()
	time.Sleep(takes)
	return w.note("restored", "")
}

func (w *witness) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	_ = w.pod("admit", pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rejected[pod.Name]
}

func (w *witness) Adopt(pod *v1.Pod)                   { _ = w.pod("adopt", pod) }
func (w *witness) Waits(pod *v1.Pod) bool              { _ = w.pod("waits", pod); return false }
func (w *witness) Recall(pod *v1.Pod, _ *observed.Pod) { _ = w.pod("recall", pod) }
func (w *witness) Learn(types.UID, *observed.Pod)      {}
func (w *witness) Allocated(pod *v1.Pod) *v1.Pod       { return pod }
func (w *witness) Changed(pod *v1.Pod) *v1.Pod         { _ = w.pod("changed", pod); return pod }
func (w *witness) Conditions(types.UID) []v1.PodCondition {
	return []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
}

func (w *witness) Reserve(_ context.Context, r part.Request) (part.Reservation, *part.Rejection) {
	if r.DryRun {
		_ = w.pod("rehearse", r.Pod)
		return nil, nil
	}
	_ = w.pod("reserve", r.Pod)
	return reserved{w, r.Pod}, nil
}

type reserved struct {
	*witness
	of *v1.Pod
}

func (r reserved) Commit(context.Context) error { return r.pod("commit", r.of) }
func (r reserved) Release()                     { _ = r.pod("release", r.of) }

func (w *witness) Hold(_ context.Context, uid types.UID) (time.Time, func(), error) {
	err := w.note("hold", w.name(uid))
	return time.Time{}, func() { _ = w.note("free", w.name(uid)) }, err
}

func (w *witness) HoldImage(ctx context.Context, uid types.UID, _ string, ensure func(context.Context) (string, error)) error {
	_ = w.note("image", w.name(uid))
	_, err := ensure(ctx)
	return err
}

func (*witness) KeepDead() int { return 1 }

func (w *witness) Syncing(pod *v1.Pod) { _ = w.pod("syncing", pod) }
func (w *witness) Prepare(_ context.Context, pod *v1.Pod, _ *observed.Pod) error {
	return w.pod("prepare", pod)
}
func (w *witness) Compile(pod *v1.Pod, _ *podspec.Input) error { return w.pod("compile", pod) }
func (w *witness) BeforeCreate(_ context.Context, c part.Container, _ *runtimeapi.ContainerConfig) (func(string, error), error) {
	return func(_ string, err error) {
		if err == nil {
			_ = w.note("created", c.Name)
		}
	}, w.note("create", c.Name)
}

func (w *witness) ContainerStarted(c part.Container, _ string) { _ = w.note("started", c.Name) }
func (w *witness) ContainerRemoved(string)                     { _ = w.note("removed", "") }
func (w *witness) Happened(ev pleg.Event)                      { _ = w.note("happened", w.name(ev.UID)) }
func (w *witness) Report(pod *v1.Pod, st *v1.PodStatus)        { st.Message = "seen by the witness" }

func (w *witness) Synced(pod *v1.Pod, _ *podruntime.Result, _ func() bool) bool {
	_ = w.pod("synced", pod)
	return false
}

// Stopped notes the phase of the pod, too.
func (w *witness) Stopped(_ context.Context, ref part.Ref) error {
	phase, _ := w.host.Phase(ref.UID)
	return w.note("stopped", ref.Name+" "+string(phase))
}

func (w *witness) Gone(_ context.Context, ref part.Ref) error { return w.note("gone", ref.Name) }

// Sweep notes the pods that it is to forget.
func (w *witness) Sweep(_ context.Context, known func(types.UID) bool) error {
	w.mu.Lock()
	uids := slices.Sorted(maps.Keys(w.names))
	w.mu.Unlock()
	for _, uid := range uids {
		if !known(uid) {
			_ = w.note("forget", w.name(uid))
			w.set(func(w *witness) { delete(w.names, uid) })
		}
	}
	return w.note("sweep", "")
}

func (w *witness) Housekeep([]*v1.Pod) { _ = w.note("housekeep", "") }

func (w *witness) Over(pod *v1.Pod, why podlife.Cause) bool {
	_ = w.note("over", pod.Name+" "+string(why.Kind))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

func (w *witness) Begins(pod *v1.Pod, _ podlife.Cause) { _ = w.pod("begins", pod) }

// In the life of a node, the agent asks its parts at the right moments: each row follows the one
// before.
func TestMomentsOfParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := agenttest.New(t), &witness{}
		n.Config.Parts = []part.Part{w}
		a := n.Start()
		pod := func(name string) *v1.Pod { return agenttest.Pod(name, agenttest.Container("c-"+name)) }
		status := func(name string) v1.PodStatus { return n.Pod(name).Status }
		ready := func(names ...string) {
			for _, name := range names {
				n.Await(name, agenttest.Ready)
			}
			time.Sleep(time.Second)
		}
		answer := func(hook string, err error) { w.set(func(w *witness) { w.fails = map[string]error{hook: err} }) }
		for _, tc := range []struct {
			moment string
			do     func()
			of     string // hooks
			want   string
		}{
			{"a pod comes", func() { n.Want(pod("a")); ready("a") },
				"run admit waits reserve commit hold syncing prepare compile image create created started synced free",
				"run, admit a, waits a, reserve a, commit a, hold a, syncing a, prepare a, compile a, image a, create c-a, created c-a, started c-a, synced a, free a"},
			{"its container dies", func() {
				for _, c := range must1(n.Runtime.ListContainers(t.Context(), nil)) {
					n.Runtime.Kill(c.GetId())
				}
				n.Await("a", agenttest.Ready, agenttest.Restarts(1))
			}, "happened create started", "happened a, create c-a, started c-a"},
			{"it is edited", func() {
				edited := pod("a")
				edited.Labels = map[string]string{"a": "b"}
				n.Want(edited)
				time.Sleep(time.Second)
			}, "changed admit reserve", "changed a"},
			{"somebody asks whether a pod would fit", func() { a.Fit(pod("dry")) }, "admit waits rehearse reserve commit", "admit dry, rehearse dry"},
			{"the agent is restarted, and another pod has come", func() {
				w.set(func(w *witness) { w.restores = 5 * time.Second })
				n.Stop()
				n.Want(pod("b"), pod("a"))
				a = n.Start()
				ready("a", "b")
			}, "end restored recall adopt admit reserve", "end, restored, recall a, adopt a, recall b, admit b, reserve b"},
			{"a pod cannot be prepared", func() {
				answer("prepare", podlife.WithReason("NotPrepared", errors.New("nobody is there")))
				n.Want(pod("a"), pod("b"), pod("c"))
				time.Sleep(5 * time.Second)
				if why := a.Why(n.Pod("c")); why.NextReason != "NotPrepared" || why.LastError != "nobody is there" {
					t.Errorf("a pod that is not prepared waits for %+v", why)
				}
			}, "prepare compile create", "prepare c"},
			{"its container cannot be created", func() {
				answer("create", errors.New("nobody made it ready"))
				w.host.Retry("uid-c")
				time.Sleep(5 * time.Second)
				if st := status("c").ContainerStatuses[0].State.Waiting; st == nil || !strings.Contains(st.Message, "nobody made it ready") {
					t.Errorf("a container that is not created waits for %+v", st)
				}
			}, "prepare create started", "prepare c, create c-c"},
			{"what it waited for is there", func() {
				answer("", nil)
				w.host.Retry("uid-c")
				ready("c")
			}, "create created started", "create c-c, created c-c, started c-c"},
			{"a pod goes, and its resources cannot be taken back", func() {
				answer("stopped", errors.New("it is in use"))
				n.Want(pod("a"), pod("b"))
				time.Sleep(15 * time.Second)
				if st := status("c"); st.Phase != v1.PodRunning {
					t.Errorf("it is shown as %s", st.Phase)
				}
				if at, ok := w.host.Worker("uid-c"); !ok || at.Kind != podworker.Terminating {
					t.Errorf("its worker is at %+v, want Terminating", at)
				}
			}, "stopped gone forget", "stopped c Running"},
			{"nor in the agent's next life", func() { n.Restart(); time.Sleep(30 * time.Second) }, "stopped removed forget", "removed, stopped c"},
			{"they can", func() { answer("", nil); time.Sleep(time.Minute); n.AwaitGone("c") }, "stopped forget", "stopped c, forget c"},
			{"a pod goes", func() { n.Want(pod("b")); n.AwaitGone("a"); time.Sleep(time.Second) }, "stopped forget gone", "stopped a Running, forget a, gone a"},
			{"a part ends a pod", func() {
				if err := w.host.End(t.Context(), n.Pod("b"), podlife.Cause{Kind: podlife.Evicted, Message: "The node was low on space. "}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				st := status("b")
				if st.Phase != v1.PodFailed || st.Reason != "Evicted" || !slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
					t.Errorf("it is shown as %+v", st)
				}
				for _, c := range must1(n.Runtime.ListContainers(t.Context(), nil)) {
					t.Errorf("container %s of an evicted pod is left", c.GetMetadata().GetName())
				}
			}, "stopped over begins", "stopped b Failed, over b Evicted"},
			{"it begins again", func() {
				w.set(func(w *witness) { w.over = true })
				w.host.Housekeep()
				ready("b")
				if st := status("b"); st.Reason != "" || slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
					t.Errorf("it is shown as %+v", st)
				}
			}, "over begins admit waits reserve commit create", "over b Evicted, begins b, admit b, waits b, reserve b, commit b, create c-b"},
			{"a pod has to wait", func() {
				w.set(func(w *witness) {
					w.rejected = map[string]*part.Rejection{"d": {Reason: "NotYet", RetryUntil: time.Now().Add(time.Hour)}}
				})
				n.Want(pod("b"), pod("d"))
				time.Sleep(time.Second)
				if st := status("d"); st.Phase != v1.PodPending || st.Reason != "NotYet" {
					t.Errorf("it is shown as %+v", st)
				}
			}, "admit reserve", "admit d"},
			{"it no longer has to", func() {
				w.set(func(w *witness) { w.rejected = nil })
				w.host.Readmit()
				synctest.Wait()
			}, "admit reserve", "admit d, reserve d"},
			{"a pod that ran before the agent's end is rejected", func() {
				ready("d")
				n.Stop()
				for _, s := range must1(n.Runtime.ListPodSandbox(t.Context(), nil)) {
					if s.GetMetadata().GetName() == "d" {
						_ = n.Runtime.StopPodSandbox(t.Context(), s.GetId()) // as at the machine's boot
					}
				}
				w.set(func(w *witness) { w.rejected = map[string]*part.Rejection{"d": {Reason: "No"}} })
				w.took("")
				a = n.Start()
				n.Await("d", agenttest.Phase(v1.PodFailed), agenttest.Reason("No"))
				time.Sleep(time.Minute)
			}, "admit adopt stopped", "adopt b, admit d, stopped d Failed"},
		} {
			tc.do()
			if got := w.took(tc.of); got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.moment, got, tc.want)
			}
		}
		if st := status("b"); st.Message != "seen by the witness" || !slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizeInProgress }) {
			t.Errorf("the status lacks what the part adds: %+v", st)
		}
	})
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// While a source has not delivered, its pods may still be wanted: nothing of them is removed.
func TestNothingIsForgottenBeforeEverySourceHasDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := agenttest.New(t), &witness{}
		n.Config.Parts = []part.Part{w}
		n.Start()
		a := agenttest.Pod("a", agenttest.Container("a"))
		n.Want(a)
		n.Await("a", agenttest.Ready)
		n.Stop()
		late := agenttest.NewSource("late", podmgr.Static)
		n.Config.Sources = append(n.Config.Sources, late)
		n.Want()
		w.took("")
		n.Start()
		time.Sleep(10 * time.Minute)
		if got := w.took("stopped forget sweep housekeep"); got != "" {
			t.Errorf("calls %s", got)
		}
		late.Set(podmgr.Snapshot{Pods: []*v1.Pod{a}})
		n.Await("a", agenttest.Ready, agenttest.Restarts(0))
		time.Sleep(time.Second)
		if got := w.took("adopt admit stopped forget create sweep"); got != "adopt a, sweep" {
			t.Errorf("calls %s", got)
		}
	})
}
