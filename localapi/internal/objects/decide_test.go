package objects

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type kind Type

func (k *kind) Type() Type { return Type(*k) }

func kindNamed(name, resource string, memory bool) *kind {
	return &kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: name}, Resource: resource, Memory: memory}
}

var (
	pods       = kindNamed("Pod", "pods", false)
	configMaps = kindNamed("ConfigMap", "configmaps", false)
	namespaces = kindNamed("Namespace", "namespaces", false)
	events     = kindNamed("Event", "events", true)
	now        = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// with changes a copy of an object.
func with[T Object](o T, f func(T)) T {
	c := o.DeepCopyObject().(T)
	f(c)
	return c
}

func pod(f ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "1", Generation: 1, ResourceVersion: "7"}}
	p.Spec = v1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: new(int64(30)), Containers: []v1.Container{{Name: "c", Image: "i"}}}
	p.Status.Phase = v1.PodRunning
	for _, f := range f {
		f(p)
	}
	return p
}

func endingIn(grace int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, &grace
	}
}

func phase(f v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = f } }
func other(p *v1.Pod)                   { p.UID = "2" }
func finalizers(f ...string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Finalizers = f }
}
func labelled(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }
func image(p *v1.Pod)    { p.Spec.Containers[0].Image = "other" }

func owned(p *v1.Pod) Entry    { return Entry{Object: p, File: "pod.yaml", At: "1"} }
func mirrored(p *v1.Pod) Entry { return Entry{Object: p, Origin: Mirrored, Source: "manifests"} }

// replacing is a Mirrored pod that ends, with the one that comes after it.
func replacing() Entry {
	e := mirrored(pod(endingIn(30)))
	e.Next = pod(other)
	return e
}

// The life of a pod: who may do what with it, and what becomes of it. Effects are n note, s show, a another, w save, e erase.
func TestDecide(t *testing.T) {
	none := Entry{}
	for _, c := range []struct {
		name    string
		cur     Entry
		ns      Phase // Live
		ch      Change
		want    Phase
		effects string
		err     metav1.StatusReason
	}{
		// Create.
		{"a client makes a pod", none, Live, Change{Verb: Create, Object: pod()}, Live, "sw", ""},
		{"a client makes one that is there", owned(pod()), Live, Change{Verb: Create, Object: pod()}, Live, "", metav1.StatusReasonAlreadyExists},
		{"a client makes one that ends", owned(pod(endingIn(30))), Live, Change{Verb: Create, Object: pod()}, Ending, "", metav1.StatusReasonAlreadyExists},
		{"a client makes one that a manifest has", mirrored(pod()), Live, Change{Verb: Create, Object: pod()}, Live, "", metav1.StatusReasonAlreadyExists},
		{"a client makes one in a namespace that ends", none, Ending, Change{Verb: Create, Object: pod()}, Absent, "", metav1.StatusReasonForbidden},
		{"a file has a pod", none, Live, Change{Verb: Create, Actor: File, Object: pod(), Read: FileState{Name: "f", Complete: true}}, Live, "s", ""},
		{"a file has one without UID", none, Live, Change{Verb: Create, Actor: File, Object: pod(), Read: FileState{Name: "f"}}, Live, "sw", ""},
		{"a file has one in a namespace that ends", none, Ending, Change{Verb: Create, Actor: File, Object: pod(), Read: FileState{Name: "f", Complete: true}}, Live, "s", ""},
		// Update.
		{"a client changes nothing", owned(pod()), Live, Change{Verb: Update, Object: pod()}, Live, "", ""},
		{"a client changes labels", owned(pod()), Live, Change{Verb: Update, Object: pod(labelled)}, Live, "sw", ""},
		{"a client changes one that is not there", none, Live, Change{Verb: Update, Object: pod()}, Absent, "", metav1.StatusReasonNotFound},
		{"a client changes one of a manifest", mirrored(pod()), Live, Change{Verb: Update, Object: pod(labelled)}, Live, "", metav1.StatusReasonForbidden},
		{"a client changes another version", owned(pod()), Live, Change{Verb: Update, Object: pod(labelled), Version: "6"}, Live, "", metav1.StatusReasonConflict},
		{"a client changes another UID", owned(pod()), Live, Change{Verb: Update, Object: pod(labelled), UID: "2"}, Live, "", metav1.StatusReasonConflict},
		{"a client says that one ends", owned(pod()), Live, Change{Verb: Update, Object: pod(endingIn(0))}, Live, "", ""},
		{"a client revives one", owned(pod(endingIn(30))), Live, Change{Verb: Update, Object: pod()}, Ending, "", ""},
		{"a file changes an image", owned(pod()), Live, Change{Verb: Update, Actor: File, Object: pod(image), Read: FileState{Name: "pod.yaml", At: "2"}}, Live, "s", ""},
		{"a file is written again", owned(pod()), Live, Change{Verb: Update, Actor: File, Object: pod(), Read: FileState{Name: "pod.yaml", At: "2"}}, Live, "n", ""},
		{"a file has another pod", owned(pod()), Live, Change{Verb: Replace, Actor: File, Object: pod(other), Read: FileState{Name: "pod.yaml", At: "2"}}, Live, "saw", ""},
		// Update of what ends.
		{"labels of an ending pod", owned(pod(endingIn(30))), Live, Change{Verb: Update, Object: pod(labelled)}, Ending, "sw", ""},
		{"an image of an ending pod", owned(pod(endingIn(30))), Live, Change{Verb: Update, Object: pod(image)}, Ending, "", metav1.StatusReasonInvalid},
		{"a file's image of an ending pod", owned(pod(endingIn(30))), Live, Change{Verb: Update, Actor: File, Object: pod(image)}, Ending, "", metav1.StatusReasonInvalid},
		{"a new finalizer of an ending pod", owned(pod(endingIn(0), finalizers("a/b"))), Live, Change{Verb: Update, Object: pod(finalizers("a/b", "a/c"))}, Ending, "", metav1.StatusReasonInvalid},
		{"the last finalizer goes", owned(pod(endingIn(0), finalizers("a/b"))), Live, Change{Verb: Update, Object: pod()}, Absent, "se", ""},
		{"one of two finalizers goes", owned(pod(endingIn(0), finalizers("a/b", "a/c"))), Live, Change{Verb: Update, Object: pod(finalizers("a/c"))}, Ending, "sw", ""},
		{"the last finalizer of a pod that still runs goes", owned(pod(endingIn(9), finalizers("a/b"))), Live, Change{Verb: Update, Object: pod()}, Ending, "sw", ""},
		// Status.
		{"the agent reports", owned(pod(phase(v1.PodPending))), Live, Change{Verb: Status, Actor: Agent, Object: pod()}, Live, "s", ""},
		{"the agent reports the same", owned(pod()), Live, Change{Verb: Status, Actor: Agent, Object: pod()}, Live, "", ""},
		{"the agent reports the end", owned(pod()), Live, Change{Verb: Status, Actor: Agent, Object: pod(phase(v1.PodFailed))}, Live, "sw", ""},
		{"the agent reports the end of one of a manifest", mirrored(pod()), Live, Change{Verb: Status, Actor: Agent, Object: pod(phase(v1.PodFailed))}, Live, "s", ""},
		{"the agent has one that ended run", owned(pod(phase(v1.PodSucceeded))), Live, Change{Verb: Status, Actor: Agent, Object: pod()}, Live, "", metav1.StatusReasonInvalid},
		{"the agent has one of a manifest run again", mirrored(pod(phase(v1.PodSucceeded))), Live, Change{Verb: Status, Actor: Agent, Object: pod()}, Live, "s", ""},
		{"a client has one that ended run", owned(pod(phase(v1.PodSucceeded))), Live, Change{Verb: Status, Object: pod()}, Live, "", metav1.StatusReasonInvalid},
		{"a client has one fail", owned(pod()), Live, Change{Verb: Status, Object: pod(phase(v1.PodFailed))}, Live, "sw", ""},
		{"a client reports for a manifest", mirrored(pod()), Live, Change{Verb: Status, Object: pod(phase(v1.PodFailed))}, Live, "", metav1.StatusReasonForbidden},
		{"the agent reports on one that ends", owned(pod(endingIn(30))), Live, Change{Verb: Status, Actor: Agent, Object: pod(phase(v1.PodPending))}, Ending, "s", ""},
		{"the agent reports on another", owned(pod()), Live, Change{Verb: Status, Actor: Agent, Object: pod(), UID: "2"}, Live, "", metav1.StatusReasonConflict},
		{"the agent reports on the one that waits", replacing(), Live, Change{Verb: Status, Actor: Agent, Object: pod(), UID: "2"}, Ending, "n", ""},
		// Delete.
		{"a client deletes one that runs", owned(pod()), Live, Change{Verb: Delete}, Ending, "sw", ""},
		{"a client deletes at once", owned(pod()), Live, Change{Verb: Delete, Grace: new(int64)}, Absent, "se", ""},
		{"a client deletes at once what has a finalizer", owned(pod(finalizers("a/b"))), Live, Change{Verb: Delete, Grace: new(int64)}, Ending, "sw", ""},
		{"a client deletes one that came to its end", owned(pod(phase(v1.PodFailed))), Live, Change{Verb: Delete}, Absent, "se", ""},
		{"a client deletes one that waits for the node", owned(pod(func(p *v1.Pod) { p.Spec.NodeName = "" })), Live, Change{Verb: Delete}, Absent, "se", ""},
		{"a client shortens", owned(pod(endingIn(30))), Live, Change{Verb: Delete, Grace: new(int64(3))}, Ending, "sw", ""},
		{"a client lengthens", owned(pod(endingIn(30))), Live, Change{Verb: Delete, Grace: new(int64(60))}, Ending, "", ""},
		{"a client deletes one of a manifest", mirrored(pod()), Live, Change{Verb: Delete}, Live, "", metav1.StatusReasonForbidden},
		{"a client deletes what is not there", none, Live, Change{Verb: Delete}, Absent, "", metav1.StatusReasonNotFound},
		{"a client deletes one that is used", owned(pod(phase(v1.PodFailed))), Live, Change{Verb: Delete, Wait: "a/b"}, Ending, "sw", ""},
		{"a client deletes one that is used again", owned(pod(endingIn(0), finalizers("c/d"))), Live, Change{Verb: Delete, Wait: "a/b"}, Ending, "", ""},
		{"a client waits for dependents", owned(pod(phase(v1.PodFailed))), Live, Change{Verb: Delete, Policy: metav1.DeletePropagationForeground}, Ending, "sw", ""},
		{"a client waits no more for dependents", owned(pod(endingIn(0), finalizers(metav1.FinalizerDeleteDependents))), Live, Change{Verb: Delete, Policy: metav1.DeletePropagationBackground}, Absent, "se", ""},
		{"a client asks again to wait for them", owned(pod(endingIn(0), finalizers(metav1.FinalizerDeleteDependents))), Live, Change{Verb: Delete}, Ending, "", ""},
		{"what is to orphan its dependents has none by then", owned(pod(phase(v1.PodFailed), finalizers(metav1.FinalizerOrphanDependents))), Live, Change{Verb: Delete}, Absent, "se", ""},
		{"a namespace deletes one of a manifest", mirrored(pod()), Live, Change{Verb: Delete, Actor: Clock}, Live, "", ""},
		// Gone.
		{"nothing is left", owned(pod(endingIn(30))), Live, Change{Verb: Gone, Actor: Agent, UID: "1"}, Absent, "se", ""},
		{"nothing is left but a finalizer", owned(pod(endingIn(30), finalizers("a/b"))), Live, Change{Verb: Gone, Actor: Agent, UID: "1"}, Ending, "sw", ""},
		{"nothing is left of another", owned(pod()), Live, Change{Verb: Gone, Actor: Agent, UID: "2"}, Live, "", metav1.StatusReasonConflict},
		{"its file is gone", owned(pod()), Live, Change{Verb: Gone, Actor: File}, Absent, "s", ""},
		{"nothing is left of one whose manifest is there", mirrored(pod()), Live, Change{Verb: Gone, Actor: Agent}, Live, "", ""},
		{"nothing is left of one whose manifest went", mirrored(pod(endingIn(30))), Live, Change{Verb: Gone, Actor: Agent}, Absent, "s", ""},
		{"nothing is left, and another one waits", replacing(), Live, Change{Verb: Gone, Actor: Agent, UID: "1"}, Live, "sa", ""},
		// Show and Hide.
		{"a manifest comes", none, Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod()}, Live, "s", ""},
		{"a manifest of a client's name", owned(pod()), Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod(other)}, Live, "", ""},
		{"the same manifest", mirrored(pod()), Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod(phase(""))}, Live, "", ""},
		{"another source's", mirrored(pod()), Live, Change{Verb: Show, Actor: File, Source: "http", Object: pod(labelled)}, Live, "", ""},
		{"a manifest is edited", mirrored(pod()), Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod(other)}, Ending, "sn", ""},
		{"a manifest is edited after its pod ended", mirrored(pod(phase(v1.PodFailed))), Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod(other)}, Live, "sa", ""},
		{"a manifest comes back", mirrored(pod(endingIn(30))), Live, Change{Verb: Show, Actor: File, Source: "manifests", Object: pod()}, Live, "s", ""},
		{"a manifest goes", mirrored(pod()), Live, Change{Verb: Hide, Actor: File, Source: "manifests"}, Ending, "s", ""},
		{"a manifest goes after its pod ended", mirrored(pod(phase(v1.PodFailed))), Live, Change{Verb: Hide, Actor: File, Source: "manifests"}, Absent, "s", ""},
		{"a manifest that waits goes", replacing(), Live, Change{Verb: Hide, Actor: File, Source: "manifests"}, Ending, "n", ""},
	} {
		c.ch.Kind, c.ch.Key = pods, Key{"ns", "p"}
		var before string
		if c.cur.Object != nil {
			before = fmt.Sprint(c.cur.Object)
		}
		next, do, err := decide(c.cur, c.ns, c.ch, now)
		if c.cur.Object != nil && fmt.Sprint(c.cur.Object) != before {
			t.Errorf("%s: the object that was there is changed", c.name)
		}
		if next.Phase() != c.want || do != effectsOf(c.effects) || apierrors.ReasonForError(err) != c.err && (err != nil || c.err != "") {
			t.Errorf("%s: phase %d, effects %05b, error %v; want %d, %05b, %s", c.name, next.Phase(), do, err, c.want, effectsOf(c.effects), c.err)
		}
	}
}

func effectsOf(s string) (e effects) {
	for _, r := range s {
		e |= map[rune]effects{'n': note, 's': show, 'a': another, 'w': save, 'e': erase}[r]
	}
	return e
}

// The status is all that a status changes, and all that the agent's own conditions are.
func TestDecideStatusAlone(t *testing.T) {
	cur := owned(pod(func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: "example.com/mine"}, {Type: v1.PodReady}}
		p.Status.QOSClass = v1.PodQOSBurstable
	}))
	for _, actor := range []Actor{Client, Agent} {
		sent := pod(labelled, image, other, phase(v1.PodPending), finalizers("a/b"), endingIn(3))
		next, _, err := decide(cur, Live, Change{Kind: pods, Key: Key{"ns", "p"}, Verb: Status, Actor: actor, Object: sent}, now)
		if err != nil {
			t.Fatal(err)
		}
		p := next.Object.(*v1.Pod)
		if p.Status.Phase != v1.PodPending {
			t.Errorf("actor %d: phase %s", actor, p.Status.Phase)
		}
		if mine := len(p.Status.Conditions) == 1 && p.Status.QOSClass == v1.PodQOSBurstable; mine != (actor == Agent) {
			t.Errorf("actor %d: status %+v", actor, p.Status)
		}
		p.Status = cur.Object.(*v1.Pod).Status
		if !Unchanged(p, cur.Object) {
			t.Errorf("actor %d changes more than the status: %v", actor, p)
		}
	}
}

// The generation counts changes of the spec, and the deletion; once each.
func TestDecideGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		cur  Entry
		ch   Change
		want int64
	}{
		"labels":    {owned(pod()), Change{Verb: Update, Object: pod(labelled)}, 1},
		"spec":      {owned(pod()), Change{Verb: Update, Object: pod(image)}, 2},
		"chosen":    {owned(pod()), Change{Verb: Update, Object: pod(image, func(p *v1.Pod) { p.Generation = 9 })}, 2},
		"status":    {owned(pod()), Change{Verb: Status, Object: pod(phase(v1.PodFailed))}, 1},
		"deleted":   {owned(pod()), Change{Verb: Delete}, 2},
		"shortened": {owned(pod(endingIn(30))), Change{Verb: Delete, Grace: new(int64(1))}, 1},
		"gone":      {owned(pod(endingIn(30), finalizers("a/b"))), Change{Verb: Gone, Actor: Agent}, 1},
	} {
		c.ch.Kind, c.ch.Key = pods, Key{"ns", "p"}
		next, _, err := decide(c.cur, Live, c.ch, now)
		if err != nil || next.Object.GetGeneration() != c.want {
			t.Errorf("%s: generation %d, %v; want %d", name, next.Object.GetGeneration(), err, c.want)
		}
	}
}

// Namespaces end when nothing is left in them, and events are refused where there is none.
func TestDecideNamespaces(t *testing.T) {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	ending := with(ns, func(n *v1.Namespace) { n.DeletionTimestamp = &metav1.Time{Time: now} })
	held := with(ending, func(n *v1.Namespace) { n.Finalizers = []string{"a/b"} })
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}}
	for _, c := range []struct {
		name    string
		cur     Entry
		ns      Phase
		ch      Change
		want    Phase
		effects string
		err     metav1.StatusReason
	}{
		{"deleted", Entry{Object: ns, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Delete}, Ending, "sw", ""},
		{"deleted at once", Entry{Object: ns, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Delete, Grace: new(int64)}, Ending, "sw", ""},
		{"deleted again", Entry{Object: ending, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Delete}, Ending, "", ""},
		{"the default one", Entry{Object: ns}, Live, Change{Kind: namespaces, Key: Key{Name: "default"}, Verb: Delete}, Live, "", metav1.StatusReasonForbidden},
		{"empty", Entry{Object: ending, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Gone, Actor: Clock}, Absent, "se", ""},
		{"empty with a finalizer", Entry{Object: held, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Gone, Actor: Clock}, Ending, "sw", ""},
		{"a finalizer of one with something in it goes", Entry{Object: held, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Update, Object: with(ns, func(*v1.Namespace) {})}, Ending, "sw", ""},
		{"seen in a manifest", Entry{}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Create, Actor: Agent, Object: with(ns, func(*v1.Namespace) {})}, Live, "s", ""},
		{"kept", Entry{Object: ns}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Keep, Actor: Clock}, Live, "nw", ""},
		{"kept already", Entry{Object: ns, File: "f"}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Keep, Actor: Clock}, Live, "", ""},
		{"a file has it", Entry{Object: ns}, Live, Change{Kind: namespaces, Key: Key{Name: "ns"}, Verb: Create, Actor: File, Object: with(ns, func(*v1.Namespace) {}), Read: FileState{Name: "f", Complete: true}}, Live, "s", ""},
		{"an event", Entry{}, Live, Change{Kind: events, Key: KeyOf(event), Actor: Agent, Verb: Create, Object: event}, Live, "s", ""},
		{"an event where it ends", Entry{}, Ending, Change{Kind: events, Key: KeyOf(event), Actor: Agent, Verb: Create, Object: event}, Absent, "", metav1.StatusReasonForbidden},
		{"an event without one", Entry{}, Absent, Change{Kind: events, Key: KeyOf(event), Actor: Agent, Verb: Create, Object: event}, Absent, "", metav1.StatusReasonNotFound},
		{"an old event", Entry{Object: event, Origin: Fleeting}, Live, Change{Kind: events, Key: KeyOf(event), Actor: Clock, Verb: Gone}, Absent, "s", ""},
	} {
		next, do, err := decide(c.cur, c.ns, c.ch, now)
		if next.Phase() != c.want || do != effectsOf(c.effects) || apierrors.ReasonForError(err) != c.err && (err != nil || c.err != "") {
			t.Errorf("%s: phase %d, effects %05b, error %v; want %d, %05b, %s", c.name, next.Phase(), do, err, c.want, effectsOf(c.effects), c.err)
		}
	}
	_, _, err := decide(Entry{}, Ending, Change{Kind: configMaps, Key: Key{"ns", "c"}, Verb: Create, Object: &v1.ConfigMap{}}, now)
	if !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		t.Errorf("%v has no cause %s", err, v1.NamespaceTerminatingCause)
	}
}
