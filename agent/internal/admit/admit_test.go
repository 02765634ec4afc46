package admit_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// world is a node with 2 CPUs, and the pods on it.
type world struct {
	admit.Admission
	pods    map[types.UID]*v1.Pod
	order   []types.UID
	workers map[types.UID]podworker.Status
	over    map[types.UID]bool // its containers are proven to have stopped
	phases  map[types.UID]v1.PodPhase
}

func newWorld(t *testing.T, parts ...part.Part) *world {
	t.Helper()
	h, err := hooks.Find(parts)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{pods: map[types.UID]*v1.Pod{}, workers: map[types.UID]podworker.Status{}, over: map[types.UID]bool{}, phases: map[types.UID]v1.PodPhase{}}
	w.Admission = admit.Admission{
		Node:  &fit.Node{Name: "n", Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10")}},
		Hooks: h, Book: book.New(), Pods: podList{w}, Workers: w,
		Guard: &hooks.Guard{Log: zap.NewNop(), Panics: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"part"})},
		Phase: func(uid types.UID) (v1.PodPhase, bool) { ph, ok := w.phases[uid]; return ph, ok },
	}
	return w
}

func (w *world) Pod(uid types.UID) (*v1.Pod, bool)  { p, ok := w.pods[uid]; return p, ok }
func (w *world) KnownTerminated(uid types.UID) bool { return w.over[uid] }
func (w *world) TerminationRequested(uid types.UID) bool {
	return w.workers[uid].Kind != podworker.Sync
}
func (w *world) List() (all []podworker.Status) {
	for _, uid := range w.order {
		if s, ok := w.workers[uid]; ok {
			all = append(all, s)
		}
	}
	return all
}

// podList has the pods of a world that are wanted.
type podList struct{ *world }

func (w podList) Pods() (all []*v1.Pod) {
	for _, uid := range w.order {
		if p := w.pods[uid]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// has adds a pod that needs so many CPUs, at a stage of its admission, and with a worker if it was
// admitted.
func (w *world) has(name, cpus string, stage book.Stage) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), Name: name, Namespace: "ns"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus)}},
	}}}}
	w.pods[p.UID], w.order = p, append(w.order, p.UID)
	w.Book.Update(part.RefOf(p), func(e *book.Entry) { e.Stage, e.Since = stage, time.Now() })
	if stage == book.Admitted {
		w.workers[p.UID] = podworker.Status{UID: p.UID, Namespace: "ns", Name: name, Pod: p}
	}
	return p
}

// ends has a pod's worker end it, by a time from now on.
func (w *world) ends(p *v1.Pod, in time.Duration) {
	s := w.workers[p.UID]
	s.Kind, s.EndsBy = podworker.Terminating, time.Now().Add(in)
	w.workers[p.UID] = s
}

// said is an answer in words.
func said(v admit.Verdict) string {
	out := "runs"
	if r := v.Why; r.Waits() {
		out = fmt.Sprintf("waits %v: %s", time.Until(r.RetryUntil), r.Message[strings.LastIndex(r.Message, ";")+1:])
	} else if r != nil {
		out = "rejected: " + r.Reason
	}
	for _, victim := range v.Victims {
		out += ", ends " + victim.Pod.Name
	}
	return out
}

// preempter ends every other pod.
type preempter struct{ asked *[]string }

func (preempter) Name() string { return "preempter" }
func (p preempter) Victims(_ *v1.Pod, others []*v1.Pod, _ v1.ResourceList) []*v1.Pod {
	for _, o := range others {
		*p.asked = append(*p.asked, o.Name)
	}
	return others
}
func (preempter) Preempt(*v1.Pod, *v1.Pod, v1.ResourceList) (podlife.Cause, func(error)) {
	return podlife.Cause{}, nil
}

// forecaster is a part whose devices stay with others.
type forecaster struct{ admitter }

func (forecaster) FitsWithout(*v1.Pod, []types.UID) bool { return false }

// admitter answers what it is told to.
type admitter struct{ answer *part.Rejection }

func (admitter) Name() string                               { return "admitter" }
func (a admitter) Admit(*v1.Pod, []*v1.Pod) *part.Rejection { return a.answer }

// panics is a part that cannot answer.
type panics struct{ admitter }

func (panics) Admit(*v1.Pod, []*v1.Pod) *part.Rejection { panic("no answer") }

func TestDecide(t *testing.T) {
	later := &part.Rejection{Reason: "NotYet", Message: "a; plugin", RetryUntil: time.Now().AddDate(100, 0, 0)}
	grace := int64(10)
	for name, tc := range map[string]struct {
		parts []part.Part
		begin func(*world)
		cpus  string // what it needs; 1500m
		want  string
		asked string // which pods a preempter was asked about
	}{
		"an empty node":     {want: "runs"},
		"no room":           {begin: func(w *world) { w.has("old", "1", book.Admitted) }, want: "rejected: OutOfcpu"},
		"a part says no":    {parts: []part.Part{admitter{&part.Rejection{Reason: "No"}}}, want: "rejected: No"},
		"a part cannot say": {parts: []part.Part{panics{}}, want: "rejected: UnexpectedAdmissionError"},
		"its room is being reserved for another one": {
			begin: func(w *world) { w.has("other", "1", book.Reserving) }, want: "waits 2m30s:  it waits for the end of ns/other (or its admission)",
		},
		"others wait": {begin: func(w *world) {
			w.has("other", "2", book.Waiting)
			w.Book.Update(part.Ref{UID: "other"}, func(e *book.Entry) { e.Why = later })
		}, want: "runs"},
		"one ends": {begin: func(w *world) { w.ends(w.has("old", "1", book.Admitted), 10*time.Second) }, want: "waits 40s:  it waits for the end of ns/old"},
		"one came back while it ends": {begin: func(w *world) {
			w.ends(w.has("old", "1", book.Admitted), 10*time.Second)
			w.Book.Update(part.Ref{UID: "old"}, func(e *book.Entry) { e.Stage, e.Why = book.Waiting, &part.Rejection{Reason: book.AwaitingEnd} })
		}, want: "waits 40s:  it waits for the end of ns/old"},
		"one ends, and that is not enough": {begin: func(w *world) {
			w.has("stays", "1", book.Admitted)
			w.ends(w.has("old", "1", book.Admitted), 10*time.Second)
		}, want: "rejected: OutOfcpu"},
		"one does not end in time": {begin: func(w *world) { w.ends(w.has("old", "1", book.Admitted), -31*time.Second) }, want: "rejected: OutOfcpu"},
		"one has ended":            {begin: func(w *world) { w.over[w.has("old", "1", book.Admitted).UID] = true }, want: "runs"},
		"one came to its end":      {begin: func(w *world) { w.phases[w.has("old", "1", book.Admitted).UID] = v1.PodSucceeded }, want: "runs"},
		"one is shown as failed before it has ended": {begin: func(w *world) {
			w.ends(w.has("old", "1", book.Admitted), 10*time.Second)
			w.phases["old"] = v1.PodFailed
		}, want: "waits 40s:  it waits for the end of ns/old"},
		"nobody wants one": {begin: func(w *world) { w.has("old", "1", book.Admitted); delete(w.pods, "old") }, want: "runs"},
		"one ends, and devices stay": {
			parts: []part.Part{forecaster{}},
			begin: func(w *world) { w.ends(w.has("old", "1", book.Admitted), 10*time.Second) }, want: "rejected: OutOfcpu",
		},
		"it preempts": {parts: []part.Part{preempter{}}, begin: func(w *world) {
			w.has("old", "1", book.Admitted).Spec.TerminationGracePeriodSeconds = &grace
		}, want: "waits 40s:  it waits for the end of ns/old, ends old", asked: "old"},
		"it preempts beside one that ends": {parts: []part.Part{preempter{}}, begin: func(w *world) {
			w.ends(w.has("leaves", "1", book.Admitted), 10*time.Second)
			w.has("old", "1", book.Admitted).Spec.TerminationGracePeriodSeconds = &grace
		}, want: "waits 40s:  it waits for the end of ns/leaves, ns/old, ends old", asked: "old"},
		"it preempts nobody without a worker": {
			parts: []part.Part{preempter{}, forecaster{}},
			begin: func(w *world) { w.has("other", "1", book.Reserving) }, want: "rejected: OutOfcpu",
		},
		"it preempts nobody that ends late": {parts: []part.Part{preempter{}}, begin: func(w *world) {
			w.ends(w.has("late", "1", book.Admitted), -31*time.Second)
		}, want: "rejected: OutOfcpu"},
		"preemption would not help": {parts: []part.Part{preempter{}, forecaster{}}, begin: func(w *world) {
			w.has("old", "1", book.Admitted)
		}, want: "rejected: OutOfcpu", asked: "old"},
		"nothing that others have is missing": {
			parts: []part.Part{preempter{}, admitter{&part.Rejection{Reason: "No"}}},
			begin: func(w *world) { w.has("old", "100m", book.Admitted) }, cpus: "1", want: "rejected: No",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				for i, p := range tc.parts {
					if _, is := p.(preempter); is {
						tc.parts[i] = preempter{&asked}
					}
				}
				w := newWorld(t, tc.parts...)
				if tc.begin != nil {
					tc.begin(w)
				}
				pod := w.has("new", cmp.Or(tc.cpus, "1500m"), book.Unknown)
				got := said(w.Decide(pod))
				if got != tc.want || strings.Join(asked, " ") != tc.asked {
					t.Errorf("it %s, want %s; a preempter was asked about %q, want %q", got, tc.want, asked, tc.asked)
				}
			})
		})
	}
}

// After a refused reservation, a pod that no source wants any more counts until its containers have
// ended: its devices are not free. A critical pod then gets those of another pod.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		unwanted time.Duration // from now until it should have ended
		over     bool
		want     string
	}{
		"it should have ended long ago": {unwanted: -31 * time.Second, want: "waits 1m0s:  it waits for the end of ns/less, ends less"},
		"it ends in time":               {unwanted: 10 * time.Second, want: "waits 40s:  it waits for the end of ns/unwanted"},
		"it has ended":                  {unwanted: -31 * time.Second, over: true, want: "rejected: NoDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, preempter{new([]string)})
				unwanted := w.has("unwanted", "1", book.Admitted)
				w.ends(unwanted, tc.unwanted)
				w.over[unwanted.UID] = tc.over
				delete(w.pods, unwanted.UID)
				w.has("less", "500m", book.Admitted)
				pod := w.has("new", "1", book.Unknown)
				if v := w.Decide(pod); v.Why != nil {
					t.Fatalf("before its reservation, it %s", said(v))
				}
				if got := said(w.Refused(pod, &part.Rejection{Reason: "NoDevices"})); got != tc.want {
					t.Errorf("it %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// pinner is a part that refuses to resize pods with the label pinned.
type pinner struct{ admitter }

func (pinner) CheckResize(_, wanted *v1.Pod) error {
	if wanted.Labels["pinned"] == "" {
		return nil
	}
	return &part.ResizeError{Detail: "pinned", Err: errors.New("it has CPUs of its own")}
}

// A resize is infeasible if the node could never give it or a part refuses it, and deferred while others have the room.
func TestCheckResize(t *testing.T) {
	w := newWorld(t, pinner{})
	has := w.has("a", "500m", book.Admitted)
	asks := func(cpus string, change func(*v1.Pod)) *v1.Pod {
		p := has.DeepCopy()
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpus)
		if change != nil {
			change(p)
		}
		return p
	}
	w.has("b", "1", book.Admitted)
	for _, tc := range []struct {
		name           string
		asks           *v1.Pod
		reason, detail string
	}{
		{"it fits", asks("1", nil), "", ""},
		{"others have it", asks("1500m", nil), v1.PodReasonDeferred, ""},
		{"the node has less", asks("3", nil), v1.PodReasonInfeasible, "insufficient_node_allocatable"},
		{"a part refuses it", asks("1", func(p *v1.Pod) { p.Labels = map[string]string{"pinned": "yes"} }), v1.PodReasonInfeasible, "pinned"},
		{"another class of service", asks("500m", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }), v1.PodReasonInfeasible, "not_resizable"},
	} {
		if reason, message, detail := w.CheckResize(has, tc.asks); reason != tc.reason || detail != tc.detail || message == "" != (reason == "") {
			t.Errorf("%s: %q, %q, %q", tc.name, reason, message, detail)
		}
	}
}
