package local

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type nodeRecorder struct{ got []string }

func (*nodeRecorder) Event(*v1.Pod, string, string, string) {}

func (r *nodeRecorder) NodeEvent(eventType, reason, message string) {
	r.got = append(r.got, eventType+" "+reason+" "+message)
}

type podRecorder struct{}

func (podRecorder) Event(*v1.Pod, string, string, string) {}

func TestNodeEvents(t *testing.T) {
	rec := &nodeRecorder{}
	for _, next := range []EventRecorder{nil, podRecorder{}, rec} {
		a := NewEventLog(zap.NewNop(), "n1", next, nil)
		for range 3 {
			a.Node(v1.EventTypeWarning, "ImageGCFailed", "no disk")
		}
		a.Node(v1.EventTypeNormal, "Other", "x")
		got := a.OfNode()
		if len(got) != 2 || got[0].Reason != "ImageGCFailed" || got[0].Count != 3 || got[1].Count != 1 {
			t.Fatalf("events %+v", got)
		}
		if o := got[0].InvolvedObject; o.Kind != "Node" || o.Name != "n1" || o.UID != "n1" {
			t.Errorf("they are about %+v", o)
		}
		for i := range 2 * perObject {
			a.Node(v1.EventTypeNormal, "Many", fmt.Sprint(i))
		}
		if got := a.OfNode(); len(got) != perObject || got[len(got)-1].Message != fmt.Sprint(2*perObject-1) {
			t.Errorf("%d events are kept, the last is %+v", len(got), got[len(got)-1])
		}
	}
	if want := "Warning ImageGCFailed no disk"; len(rec.got) != 4+2*perObject || !slices.Contains(rec.got, want) {
		t.Errorf("handed on %d events", len(rec.got))
	}
}

// everything takes all kinds of events.
type everything struct{ got []string }

func (e *everything) Event(_ *v1.Pod, _, reason, _ string) { e.got = append(e.got, reason) }

func (e *everything) AnnotatedEvent(_ *v1.Pod, annotations map[string]string, _, reason, _ string) {
	e.got = append(e.got, reason+" "+annotations["k"])
}

func (e *everything) ContainerEvent(_ *v1.Pod, container, _, reason, _ string) {
	e.got = append(e.got, reason+" of "+container)
}

func (e *everything) NodeEvent(_, reason, _ string) { e.got = append(e.got, "node "+reason) }

// plain takes events of pods alone.
type plain struct{ got []string }

func (p *plain) Event(_ *v1.Pod, _, reason, _ string) { p.got = append(p.got, reason) }

// Several recorders get each event, with as much of it as each takes.
func TestEventRecorders(t *testing.T) {
	a, b, c := &everything{}, &plain{}, &everything{}
	l, pod := NewEventLog(zap.NewNop(), "n1", EventRecorders{a, b, c}, nil), &v1.Pod{}
	l.Event(pod, "Normal", "Plain", "m")
	l.Annotated(pod, map[string]string{"k": "v"}, "Warning", "Annotated", "m")
	l.ContainerEvent(pod, "main", "Normal", "Container", "m")
	l.Node("Normal", "Node", "m")
	want := "[Plain Annotated v Container of main node Node]"
	if got := fmt.Sprint(a.got); got != want || fmt.Sprint(c.got) != want {
		t.Errorf("got %s and %s, want %s", got, c.got, want)
	}
	if got := fmt.Sprint(b.got); got != "[Plain Annotated Container]" {
		t.Errorf("a recorder of pods got %s", got)
	}
}

// What is remembered of a pod is bounded, whatever its events say, and nothing
// of it is left an hour after it is gone.
func TestEventsOfPodsAreBounded(t *testing.T) {
	l := NewEventLog(zap.NewNop(), "n1", nil, nil)
	for i := range 20 {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i))}}
		for j := range 2 * perObject {
			l.Event(pod, v1.EventTypeWarning, "Failed", fmt.Sprint(j)+strings.Repeat("\u00e9", 20_000))
		}
		size := 0
		for _, e := range l.Of(pod.UID) {
			size += len(e.Message)
			if !utf8.ValidString(e.Message) {
				t.Fatalf("a message ends within a character: %q", e.Message[len(e.Message)-8:])
			}
		}
		if most := perObject * (maxMessage + 4); size == 0 || size > most {
			t.Fatalf("messages of %d bytes, want at most %d", size, most)
		}
		for i := range l.pods[pod.UID] {
			l.pods[pod.UID][i].LastTimestamp = metav1.NewTime(time.Now().Add(-lasts - time.Second))
		}
		l.Retain(func(types.UID) bool { return false })
		if len(l.pods) != 0 {
			t.Fatalf("%d pods are remembered", len(l.pods))
		}
	}
}
