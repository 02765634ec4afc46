package podsync_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/statusmgr"
)

// informer is the last version of every pod that the test has it see.
type informer map[string]*v1.Pod

func (i informer) Pod(namespace, name string) (*v1.Pod, bool) {
	p, ok := i[namespace+"/"+name]
	return p, ok
}

func (i informer) see(srv *kubeapitest.Server) *v1.Pod {
	p := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
	i["ns/a"] = p
	return p
}

func status(t *testing.T, text string) (st v1.PodStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func sinkSetup(t *testing.T, text string) (*kubeapitest.Server, informer, *podsync.Sink) {
	t.Helper()
	srv := kubeapitest.New()
	srv.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: v1.PodSpec{NodeName: "edge-1"}, Status: status(t, text)})
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	seen := informer{}
	sink, err := podsync.NewSink(podsync.SinkConfig{Client: c.Once(), Pods: seen})
	if err != nil {
		t.Fatal(err)
	}
	return srv, seen, sink
}

func shown(srv *kubeapitest.Server) string {
	p := srv.Get(&v1.Pod{}, "ns", "a")
	if p == nil {
		return "none"
	}
	st := p.(*v1.Pod).Status
	st.QOSClass = ""
	slices.SortFunc(st.Conditions, func(a, b v1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	b, _ := json.Marshal(st)
	return strings.ReplaceAll(string(b), `,"lastProbeTime":null,"lastTransitionTime":null`, "")
}

func TestUpdate(t *testing.T) {
	for _, tc := range []struct{ name, was, next, want, patch string }{
		{"from nothing", `{"phase":"Pending"}`, `{"phase":"Running","startTime":"2026-11-21T12:00:00Z","podIPs":[{"ip":"10.0.0.1"}]}`,
			`{"phase":"Running","podIPs":[{"ip":"10.0.0.1"}],"startTime":"2026-11-21T12:00:00Z"}`, ""},
		{"only what differs", `{"phase":"Running","hostIP":"1.2.3.4","conditions":[{"type":"Ready","status":"False","reason":"r","message":"m"},{"type":"Initialized","status":"True"}]}`,
			`{"phase":"Running","hostIP":"1.2.3.4","conditions":[{"type":"Ready","status":"True"},{"type":"Initialized","status":"True"}]}`,
			`{"phase":"Running","conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":"True"}],"hostIP":"1.2.3.4"}`,
			`"status":{"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":null,"reason":null,"message":null}]}}`},
		{"conditions of others", `{"phase":"Running","conditions":[{"type":"foreign","status":"True"}]}`,
			`{"phase":"Running","conditions":[{"type":"foreign","status":"False"},{"type":"other","status":"True"},{"type":"Ready","status":"True"}]}`,
			`{"phase":"Running","conditions":[{"type":"Ready","status":"True"},{"type":"foreign","status":"True"}]}`, ""},
		{"a condition that goes", `{"phase":"Running","conditions":[{"type":"foreign","status":"True"},{"type":"PodResizePending","status":"True"}]}`, `{"phase":"Running"}`,
			`{"phase":"Running","conditions":[{"type":"foreign","status":"True"}]}`, ""},
		{"claims are others'", `{"phase":"Running","resourceClaimStatuses":[{"name":"c"}]}`, `{"phase":"Running","reason":"r"}`,
			`{"phase":"Running","reason":"r","resourceClaimStatuses":[{"name":"c"}]}`, ""},
		{"addresses in order", `{"phase":"Running","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}`, `{"phase":"Running","podIPs":[{"ip":"fd00::1"},{"ip":"10.0.0.2"}]}`,
			`{"phase":"Running","podIPs":[{"ip":"fd00::1"},{"ip":"10.0.0.2"}]}`, ""},
		{"what is no more", `{"phase":"Running","reason":"r","message":"m","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}`, `{"phase":"Running"}`, `{"phase":"Running"}`, ""},
		{"resources", `{"phase":"Running","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}`, `{"phase":"Running","resources":{"requests":{"cpu":"2"}}}`,
			`{"phase":"Running","resources":{"requests":{"cpu":"2"}}}`, ""},
		{"a pod that is over stays so", `{"phase":"Succeeded","reason":"r"}`, `{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}`,
			`{"phase":"Succeeded","conditions":[{"type":"Ready","status":"False"}],"reason":"r"}`, ""},
		{"with what runs in it", `{"phase":"Failed","containerStatuses":[{"name":"c","restartCount":0,"image":"","imageID":"","ready":false}]}`,
			`{"phase":"Running","message":"m","containerStatuses":[{"name":"c","state":{"running":{}}}]}`,
			`{"phase":"Failed","containerStatuses":[{"name":"c","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}]}`, "none"},
		{"with what it has done", `{"phase":"Succeeded","containerStatuses":[{"name":"c","restartCount":0,"image":"","imageID":"","ready":false}]}`,
			`{"phase":"Failed","reason":"OutOfcpu","message":"Pod was rejected: m"}`,
			`{"phase":"Succeeded","containerStatuses":[{"name":"c","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}]}`, "none"},
		{"so does its end", `{"phase":"Succeeded"}`, `{"phase":"Failed","message":"m"}`, `{"phase":"Succeeded"}`, "none"},
		{"generations do not go back", `{"observedGeneration":5,"phase":"Running"}`, `{"observedGeneration":4,"phase":"Running"}`, `{"observedGeneration":5,"phase":"Running"}`, "none"},
		{"generations go on", `{"observedGeneration":5,"phase":"Running"}`, `{"observedGeneration":6,"phase":"Running"}`, `{"observedGeneration":6,"phase":"Running"}`, ""},
		{"no news", `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`,
			`{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv, seen, sink := sinkSetup(t, tc.was)
			p := seen.see(srv)
			if err := sink.Update(t.Context(), p, status(t, tc.next)); err != nil {
				t.Fatal(err)
			}
			if got := shown(srv); got != tc.want {
				t.Errorf("shows %s\nwant  %s", got, tc.want)
			}
			calls := srv.Requests()
			if tc.patch == "none" {
				if len(calls) != 0 {
					t.Errorf("called %v", calls)
				}
				return
			}
			if len(calls) != 1 || calls[0].Verb != "patch" || calls[0].Subresource != "status" ||
				!strings.HasPrefix(string(calls[0].Body), `{"metadata":{"uid":"`+string(p.UID)+`"},`) || !strings.HasSuffix(string(calls[0].Body), tc.patch) {
				t.Errorf("called %s %s", calls[0].Verb, calls[0].Body)
			}
		})
	}
}

// What was published a moment ago counts, though no watch has told of it.
func TestThereAndBackAgain(t *testing.T) {
	srv, seen, sink := sinkSetup(t, `{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}`)
	p := seen.see(srv)
	for _, want := range []string{"True", "False", "True"} {
		if err := sink.Update(t.Context(), p, status(t, `{"phase":"Running","conditions":[{"type":"Ready","status":"`+want+`"}]}`)); err != nil {
			t.Fatal(err)
		}
		if got := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod).Status.Conditions[0].Status; string(got) != want {
			t.Errorf("Ready is %s, want %s", got, want)
		}
	}
	if n := len(srv.Requests()); n != 3 {
		t.Errorf("%d calls for three changes", n)
	}
	// And then somebody else changes it, which the watch reports.
	q := seen.see(srv)
	q.Status.Conditions[0].Status = v1.ConditionFalse
	srv.Put(q)
	seen.see(srv)
	if err := sink.Update(t.Context(), p, status(t, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)); err != nil {
		t.Fatal(err)
	}
	if got := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod).Status.Conditions[0].Status; got != v1.ConditionTrue {
		t.Errorf("Ready is %s", got)
	}
}

// A pod that is not known at all is read once.
func TestWithoutAWatch(t *testing.T) {
	srv, _, sink := sinkSetup(t, `{"phase":"Pending"}`)
	p := srv.Get(&v1.Pod{}, "ns", "a").(*v1.Pod)
	for _, phase := range []string{"Running", "Failed"} {
		if err := sink.Update(t.Context(), p, status(t, `{"phase":"`+phase+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := srv.Count("get", kubeapi.Pods); got != 1 || shown(srv) != `{"phase":"Failed"}` {
		t.Errorf("%d GETs, shows %s", got, shown(srv))
	}
}

func TestAnotherPodIsNotTouched(t *testing.T) {
	for _, there := range []bool{false, true} {
		srv, seen, sink := sinkSetup(t, `{"phase":"Running"}`)
		p := seen.see(srv)
		srv.Remove(kubeapi.Pods, "ns", "a")
		want := "none"
		if there {
			srv.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: v1.PodSpec{NodeName: "edge-1"}, Status: v1.PodStatus{Phase: v1.PodPending}})
			want = `{"phase":"Pending"}`
		}
		if err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodFailed}); !errors.Is(err, statusmgr.ErrGone) {
			t.Errorf("updated: %v", err)
		}
		if err := sink.Delete(t.Context(), p); !errors.Is(err, statusmgr.ErrGone) {
			t.Errorf("deleted: %v", err)
		}
		if got := shown(srv); got != want {
			t.Errorf("shows %s", got)
		}
	}
}

func TestDelete(t *testing.T) {
	srv, seen, sink := sinkSetup(t, `{"phase":"Failed"}`)
	if err := sink.Delete(t.Context(), seen.see(srv)); err != nil {
		t.Fatal(err)
	}
	if got := shown(srv); got != "none" {
		t.Errorf("shows %s", got)
	}
}

func TestConflicts(t *testing.T) {
	srv, seen, sink := sinkSetup(t, `{"phase":"Pending"}`)
	p := seen.see(srv)
	srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(http.StatusConflict), kubeapitest.Of("patch", kubeapi.Pods)))
	if err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodRunning}); err != nil || shown(srv) != `{"phase":"Running"}` {
		t.Errorf("shows %s (%v)", shown(srv), err)
	}
	srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(http.StatusConflict), kubeapitest.Any))
	if err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodFailed}); err == nil || errors.Is(err, statusmgr.ErrGone) {
		t.Errorf("got %v", err)
	}
	srv.Heal()
	if err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodRunning}); err != nil {
		t.Error(err)
	}
	srv.Remove(kubeapi.Pods, "ns", "a")
	if err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodFailed}); !errors.Is(err, statusmgr.ErrGone) {
		t.Errorf("got %v", err)
	}
	if n := srv.Count("patch", kubeapi.Pods); n != 4 {
		t.Errorf("%d patches, want 4", n)
	}
}

// A server that says when it wants to be asked again is not asked before.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, seen, sink := sinkSetup(t, `{"phase":"Pending"}`)
		p := seen.see(srv)
		srv.Fail(kubeapitest.Refuse(-1, kubeapitest.TooMany(50*time.Second), kubeapitest.Any))
		update := func() error { return sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodRunning}) }
		first := update()
		n := len(srv.Requests())
		time.Sleep(40 * time.Second)
		if err := update(); first == nil || err == nil || sink.Delete(t.Context(), p) == nil || len(srv.Requests()) != n {
			t.Errorf("%v, then %v: %d calls, then %d", first, err, n, len(srv.Requests()))
		}
		srv.Heal()
		time.Sleep(2 * time.Minute)
		if err := update(); err != nil || shown(srv) != `{"phase":"Running"}` {
			t.Errorf("shows %s (%v)", shown(srv), err)
		}
	})
}

// Tries that are too early do not have the time begin anew: a server that asked for
// patience once gets the status when that is over, however often it is tried meanwhile.
func TestRetryAfterIsNotExtendedByTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, seen, sink := sinkSetup(t, `{"phase":"Pending"}`)
		p := seen.see(srv)
		srv.Fail(kubeapitest.Refuse(1, kubeapitest.TooMany(20*time.Second), kubeapitest.Any))
		for after := time.Duration(0); after <= 20*time.Second; after += 5 * time.Second {
			err := sink.Update(t.Context(), p, v1.PodStatus{Phase: v1.PodRunning})
			if over := after == 20*time.Second; over != (err == nil) {
				t.Errorf("after %v: %v", after, err)
			}
			time.Sleep(5 * time.Second)
		}
		if shown(srv) != `{"phase":"Running"}` {
			t.Errorf("shows %s", shown(srv))
		}
	})
}

func TestSinkConfig(t *testing.T) {
	if _, err := podsync.NewSink(podsync.SinkConfig{}); err == nil || !strings.Contains(err.Error(), "Client is required") {
		t.Errorf("got %v", err)
	}
}
