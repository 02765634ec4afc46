package kubeapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

var pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}}

func bubble(t *testing.T, cfg kubeapi.EventConfig, fn func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Client, cfg.NodeName = c.Once(), "edge-1"
		rec, err := kubeapi.NewEventRecorder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, rec.Run)
		fn(t, srv, rec)
		stop()
	})
}

// told is what the server has, by message.
func told(srv *kubeapitest.Server) map[string]*v1.Event {
	synctest.Wait()
	out := map[string]*v1.Event{}
	for _, o := range srv.All(kubeapi.Events) {
		out[o.(*v1.Event).Message] = o.(*v1.Event)
	}
	return out
}

func TestEventsAreTold(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		rec.Event(pod, v1.EventTypeWarning, "FailedMount", "no such disk")
		rec.NodeEvent(v1.EventTypeNormal, "Starting", "here I am")
		have := told(srv)
		e, n := have["no such disk"], have["here I am"]
		if e == nil || n == nil {
			t.Fatalf("told %v", have)
		}
		if e.Namespace != "ns" || e.InvolvedObject.UID != "u" || e.Type != "Warning" || e.Reason != "FailedMount" || e.Count != 1 ||
			e.Source.Component != "kubelet" || e.Source.Host != "edge-1" || !strings.HasPrefix(e.Name, "a.") {
			t.Errorf("told %+v", e)
		}
		if n.Namespace != "default" || n.InvolvedObject.Kind != "Node" || n.InvolvedObject.UID != "edge-1" {
			t.Errorf("told %+v", n)
		}
	})
}

func TestAnnotationsAreTold(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		for _, resource := range []string{"memory", "ephemeral-storage"} {
			rec.AnnotatedEvent(pod, map[string]string{"starved_resource": resource}, v1.EventTypeWarning, "Evicted", "The node was low")
		}
		if e := told(srv)["The node was low"]; e == nil || e.Count != 2 || e.Annotations["starved_resource"] != "memory" {
			t.Errorf("told %+v", e)
		}
	})
}

func TestRepeatsAreCounted(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		for range 3 {
			rec.Event(pod, v1.EventTypeWarning, "BackOff", "again")
			synctest.Wait()
			time.Sleep(10 * time.Second)
		}
		if e := told(srv)["again"]; e == nil || e.Count != 3 || e.LastTimestamp.Sub(e.FirstTimestamp.Time) != 20*time.Second {
			t.Errorf("told %+v", e)
		}
		if c, p := srv.Count("create", kubeapi.Events), srv.Count("patch", kubeapi.Events); c != 1 || p != 2 {
			t.Errorf("%d creates, %d patches", c, p)
		}
		// The server forgets events after a while.
		e := told(srv)["again"]
		srv.Remove(kubeapi.Events, "ns", e.Name)
		rec.Event(pod, v1.EventTypeWarning, "BackOff", "again")
		if f := told(srv)["again"]; f == nil || f.Name == e.Name || f.Count != 4 {
			t.Errorf("told %+v", f)
		}
	})
}

func TestSimilarOnesAreCombined(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		for i := range 15 {
			rec.Event(pod, v1.EventTypeWarning, "Failed", fmt.Sprint("attempt ", i))
			synctest.Wait()
		}
		have := told(srv)
		if e := have["(combined from similar events): attempt 14"]; len(have) != 10 || e == nil || e.Count != 6 {
			t.Errorf("told %d events, the last %+v", len(have), e)
		}
		if c, p := srv.Count("create", kubeapi.Events), srv.Count("patch", kubeapi.Events); c != 10 || p != 5 {
			t.Errorf("%d creates, %d patches, want 10 and 5", c, p)
		}
		time.Sleep(11 * time.Minute)
		rec.Event(pod, v1.EventTypeWarning, "Failed", "attempt 20")
		if e := told(srv)["attempt 20"]; e == nil {
			t.Error("an event after ten quiet minutes is combined")
		}
	})
}

func TestOneObjectDoesNotFlood(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		other := pod.DeepCopy()
		other.UID, other.Name = "v", "b"
		for i := range 100 {
			rec.Event(pod, v1.EventTypeNormal, fmt.Sprint("Reason", i), "m")
			synctest.Wait()
		}
		rec.Event(other, v1.EventTypeNormal, "Other", "of another object")
		synctest.Wait()
		if n := srv.Count("create", kubeapi.Events); n != 26 {
			t.Errorf("told %d", n)
		}
		time.Sleep(301 * time.Second)
		for i := range 5 {
			rec.Event(pod, v1.EventTypeNormal, fmt.Sprint("Later", i), "m")
			synctest.Wait()
		}
		if n := srv.Count("create", kubeapi.Events); n != 27 {
			t.Errorf("told %d after five minutes", n)
		}
		if n := srv.Count("patch", kubeapi.Events); n != 0 {
			t.Errorf("%d patches", n)
		}
	})
}

func TestOffline(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		srv.Stop()
		at := time.Now()
		for i := range 1010 {
			p := pod.DeepCopy()
			p.UID, p.Name = types.UID(fmt.Sprint("u", i)), fmt.Sprint("p", i)
			rec.Event(p, v1.EventTypeNormal, "R", fmt.Sprint("m", i))
		}
		for range 7 {
			rec.Event(pod, v1.EventTypeNormal, "Repeat", "repeated")
		}
		time.Sleep(5 * time.Hour)
		srv.Start()
		time.Sleep(2 * time.Minute)
		have := told(srv)
		if e := have["repeated"]; e == nil || e.Count != 7 || e.FirstTimestamp.Sub(at) > time.Second {
			t.Errorf("told %+v", e)
		}
		if len(have) != 1000 || have["m0"] != nil {
			t.Errorf("told %d events, want 1000", len(have))
		}
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(http.StatusForbidden), kubeapitest.Any))
		rec.Event(pod, v1.EventTypeNormal, "R", "refused")
		rec.Event(pod, v1.EventTypeNormal, "S", "taken")
		if have := told(srv); have["refused"] != nil || have["taken"] == nil {
			t.Errorf("told %v", have)
		}
		srv.Heal()
		srv.Fail(kubeapitest.Refuse(2, kubeapitest.TooMany(3*time.Second), kubeapitest.Any))
		rec.Event(pod, v1.EventTypeNormal, "T", "later")
		time.Sleep(2 * time.Second)
		if told(srv)["later"] != nil {
			t.Error("a busy server was not left alone")
		}
		time.Sleep(10 * time.Second)
		if told(srv)["later"] == nil {
			t.Error("what a busy server did not take was dropped")
		}
		if n := srv.Count("create", kubeapi.Events); n != 5 {
			t.Errorf("%d creates, want 5: of two events one, and of the third three", n)
		}
	})
}

func TestLongMessages(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		rec.Event(pod, v1.EventTypeNormal, "R", strings.Repeat("ä", 1000)+"x")
		have := told(srv)
		if len(have) != 1 {
			t.Errorf("told %d events", len(have))
		}
		for m := range have {
			if len(m) != 1024 || !strings.HasSuffix(m, "ä") {
				t.Errorf("a message of %d bytes", len(m))
			}
		}
	})
}

func TestEventsConfig(t *testing.T) {
	_, err := kubeapi.NewEventRecorder(kubeapi.EventConfig{Burst: -1})
	for _, want := range []string{"Client", "NodeName", "Burst is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}

// Events of the containers of a pod name them, and those of two are two.
func TestEventsOfContainers(t *testing.T) {
	bubble(t, kubeapi.EventConfig{}, func(t *testing.T, srv *kubeapitest.Server, rec *kubeapi.EventRecorder) {
		two := pod.DeepCopy()
		two.Spec.Containers, two.Spec.InitContainers = []v1.Container{{Name: "a"}}, []v1.Container{{Name: "i"}}
		for range 2 {
			rec.ContainerEvent(two, "a", v1.EventTypeNormal, "Started", "Container started")
			rec.ContainerEvent(two, "i", v1.EventTypeNormal, "Started", "Container started")
		}
		rec.Event(two, v1.EventTypeNormal, "Started", "Container started")
		synctest.Wait()
		got := map[string]int32{}
		for _, o := range srv.All(kubeapi.Events) {
			e := o.(*v1.Event)
			got[e.InvolvedObject.FieldPath] += e.Count
		}
		if want := map[string]int32{"spec.containers{a}": 2, "spec.initContainers{i}": 2, "": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}
