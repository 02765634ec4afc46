package localapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/store"
)

const (
	oldEvents = "/api/v1/namespaces/default/events"
	newEvents = "/apis/events.k8s.io/v1/namespaces/default/events"
)

func newEvent(name string) *eventsv1.Event {
	return &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		EventTime:  metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)), Type: "Normal", Reason: "Built", Action: "Build", Note: "all of it",
		ReportingController: "example.com/builder", ReportingInstance: "builder-0",
		Regarding: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "box"},
	}
}

// What recorders do with events.k8s.io/v1: they make an event, patch its series, and watch. Clients of core's events see the
// same object.
func TestEventsByClient(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(media, func(t *testing.T) {
			a := start(t, &store.Memory{})
			c := restClient(t, a.url, media, eventsv1.SchemeGroupVersion, eventsv1.AddToScheme)
			only := metav1.ListOptions{FieldSelector: "regarding.name=box,reportingController=example.com/builder"}
			w, err := c.Get().Namespace("default").Resource("events").VersionedParams(&only, metav1.ParameterCodec).Param("watch", "true").Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			next := func() *eventsv1.Event {
				e, ok := (<-w.ResultChan()).Object.(*eventsv1.Event)
				if !ok {
					t.Fatal("the watch sends no event of events.k8s.io/v1")
				}
				return e
			}
			if err := c.Post().Namespace("default").Resource("events").Body(newEvent("one")).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			if e := next(); e.Note != "all of it" || e.Series != nil {
				t.Errorf("%+v", e)
			}
			patch := `{"series":{"count":2,"lastObservedTime":"2026-01-02T03:04:05.000006Z"}}`
			if err := c.Patch(types.StrategicMergePatchType).Namespace("default").Resource("events").Name("one").Body([]byte(patch)).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			e := next()
			if e.Series == nil || e.Series.Count != 2 {
				t.Errorf("%+v", e)
			}
			old := must[v1.Event](a, "GET", oldEvents+"/one", "", nil)
			if old.Message != "all of it" || old.InvolvedObject.Name != "box" || old.Series.Count != 2 || old.ResourceVersion != e.ResourceVersion || old.UID != e.UID {
				t.Errorf("%+v", old)
			}
		})
	}
}

// Each verb of events.k8s.io/v1 is one of core's events, with other names of fields.
func TestEventsOfBothVersions(t *testing.T) {
	a := start(t, &store.Memory{})
	made := must[eventsv1.Event](a, "POST", newEvents+"?fieldManager=maker", asJSON, newEvent("one"))
	if made.Kind != "Event" || made.APIVersion != "events.k8s.io/v1" || made.Note != "all of it" || made.UID == "" {
		t.Errorf("%+v", made)
	}
	old := must[v1.Event](a, "GET", oldEvents+"/one", "", nil)
	if old.APIVersion != "v1" || old.Message != "all of it" || old.InvolvedObject.Name != "box" || old.ReportingController != "example.com/builder" || !old.EventTime.Equal(&made.EventTime) {
		t.Errorf("%+v", old)
	}
	notes := func(list []metav1.ManagedFieldsEntry) string {
		return list[0].APIVersion + string(list[0].FieldsV1.GetRawBytes())
	}
	if s := notes(made.ManagedFields); !strings.HasPrefix(s, "events.k8s.io/v1{") || !strings.Contains(s, `"f:note"`) || strings.Contains(s, `"f:message"`) {
		t.Errorf("managed fields %s", s)
	}
	if s := notes(old.ManagedFields); !strings.HasPrefix(s, "v1{") || !strings.Contains(s, `"f:message"`) || strings.Contains(s, `"f:note"`) {
		t.Errorf("managed fields %s", s)
	}

	series := `{"series":{"count":3,"lastObservedTime":"2026-01-02T03:04:05.000006Z"}}`
	for _, media := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json"} {
		if e := must[eventsv1.Event](a, "PATCH", newEvents+"/one", media, series); e.Series == nil || e.Series.Count != 3 {
			t.Errorf("%s: %+v", media, e)
		}
	}
	if e := must[eventsv1.Event](a, "PATCH", newEvents+"/one", "application/json-patch+json", `[{"op":"test","path":"/note","value":"all of it"},{"op":"replace","path":"/series/count","value":4}]`); e.Series.Count != 4 {
		t.Errorf("%+v", e)
	}
	a.refused("PATCH", newEvents+"/one", "application/merge-patch+json", `{"note":"another"}`, 422, metav1.StatusReasonInvalid, "immutable")

	applied := must[eventsv1.Event](a, "PATCH", newEvents+"/two?fieldManager=applier", "application/apply-patch+yaml", newEvent("two"))
	if s := notes(applied.ManagedFields); !strings.Contains(s, `"f:note"`) || strings.Contains(s, "f:source") || applied.Note != "all of it" {
		t.Errorf("%s %+v", s, applied)
	}
	again := newEvent("two")
	again.EventTime, again.Series = applied.EventTime, &eventsv1.EventSeries{Count: 2, LastObservedTime: applied.EventTime}
	if e := must[eventsv1.Event](a, "PATCH", newEvents+"/two?fieldManager=applier", "application/apply-patch+yaml", again); e.Series == nil || len(e.ManagedFields) != 1 {
		t.Errorf("%+v", e)
	}

	must[v1.Event](a, "POST", oldEvents, asJSON, &v1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Name: "older"}, Message: "of core", Reason: "Old", Type: "Normal",
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "box"}, Source: v1.EventSource{Component: "me"},
	})
	list := must[eventsv1.EventList](a, "GET", "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dbox", "", nil)
	if list.Kind != "EventList" || list.APIVersion != "events.k8s.io/v1" || len(list.Items) != 3 {
		t.Errorf("%+v", list)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Name == "older" && (e.Note != "of core" || e.DeprecatedCount != 1 || e.DeprecatedSource.Component != "me") {
			t.Errorf("%+v", e)
		}
	}
	for _, name := range []string{"involvedObject.name", "reportingComponent", "source"} {
		a.refused("GET", newEvents+"?fieldSelector="+name+"%3Dx", "", "", 400, metav1.StatusReasonBadRequest, name)
	}
	_, table := a.do("GET", newEvents+"?includeObject=Object", "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if !strings.Contains(table, `"Last Seen"`) || !strings.Contains(table, "pod/box") || !strings.Contains(table, `"note":"all of it"`) {
		t.Errorf("%s", table)
	}
	must[metav1.Status](a, "DELETE", newEvents+"/one", "", nil)
	a.refused("GET", oldEvents+"/one", "", "", 404, metav1.StatusReasonNotFound, "one")
}

// events.k8s.io/v1 wants of an event what it is made for.
func TestNewEventsAreChecked(t *testing.T) {
	a := start(t, &store.Memory{})
	for says, spoil := range map[string]func(*eventsv1.Event){
		"eventTime":               func(e *eventsv1.Event) { e.EventTime = metav1.MicroTime{} },
		"type":                    func(e *eventsv1.Event) { e.Type = "Grave" },
		"firstTimestamp":          func(e *eventsv1.Event) { e.DeprecatedFirstTimestamp = metav1.Now() },
		"lastTimestamp":           func(e *eventsv1.Event) { e.DeprecatedLastTimestamp = metav1.Now() },
		"source":                  func(e *eventsv1.Event) { e.DeprecatedSource.Host = "me" },
		"count":                   func(e *eventsv1.Event) { e.DeprecatedCount = 1 },
		"series.count":            func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 1, LastObservedTime: e.EventTime} },
		"series.lastObservedTime": func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 2} },
		"reportingInstance":       func(e *eventsv1.Event) { e.ReportingInstance = "" },
	} {
		e := newEvent("one")
		spoil(e)
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		a.refused("POST", newEvents, asJSON, string(body), 422, metav1.StatusReasonInvalid, says)
	}
	core := `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"}}`
	a.refused("POST", newEvents, asJSON, core, 400, metav1.StatusReasonBadRequest, "events.k8s.io/v1")
}
