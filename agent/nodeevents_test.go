package agent

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
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
		a := &Agent{nodeEvents: newNodeEvents(zap.NewNop(), "n1", next)}
		for range 3 {
			a.nodeEvents.Event(v1.EventTypeWarning, "ImageGCFailed", "no disk")
		}
		a.nodeEvents.Event(v1.EventTypeNormal, "Other", "x")
		got := a.NodeEvents()
		if len(got) != 2 || got[0].Reason != "ImageGCFailed" || got[0].Count != 3 || got[1].Count != 1 {
			t.Fatalf("events %+v", got)
		}
		if o := got[0].InvolvedObject; o.Kind != "Node" || o.Name != "n1" || o.UID != "n1" {
			t.Errorf("they are about %+v", o)
		}
		for i := range 2 * eventsPerPod {
			a.nodeEvents.Event(v1.EventTypeNormal, "Many", fmt.Sprint(i))
		}
		if got := a.NodeEvents(); len(got) != eventsPerPod || got[len(got)-1].Message != fmt.Sprint(2*eventsPerPod-1) {
			t.Errorf("%d events are kept, the last is %+v", len(got), got[len(got)-1])
		}
	}
	if want := "Warning ImageGCFailed no disk"; len(rec.got) != 4+2*eventsPerPod || !slices.Contains(rec.got, want) {
		t.Errorf("handed on %d events", len(rec.got))
	}
}
