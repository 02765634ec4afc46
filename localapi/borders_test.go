package localapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmgr"
)

// crowd is a server in a bubble, and many clients of it, who are named in a header.
type crowd struct {
	*localapi.Server

	t  *testing.T
	h  http.Handler
	wg sync.WaitGroup
	// ctx ends the clients.
	ctx context.Context
}

// root is the client at the socket that only root can open.
const root = ""

// inCrowd runs a server with some objects until test has ended. Others are users of a group.
func inCrowd(t *testing.T, change func(*localapi.Config), test func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := localapi.Config{Node: "node-1", Store: &store.Memory{}, Kubelet: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // a log that is followed
		})}
		change(&cfg)
		srv, err := localapi.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }()
		synctest.Wait()
		clients, leave := context.WithCancel(ctx)
		c := &crowd{Server: srv, t: t, ctx: clients, h: srv.Handler(func(r *http.Request) (*localapi.User, error) {
			name := r.Header.Get("X-Name")
			if name == root {
				return localapi.Root(r)
			}
			group, _, _ := strings.Cut(name, "-")
			return &localapi.User{Name: name, Groups: []string{"nodewright:" + group}}, nil
		})}
		test(c)
		leave()
		c.wg.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (c *crowd) request(name, method, path string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(c.ctx, method, path, body)
	r.Header.Set("X-Name", name)
	r.Header.Set("Content-Type", asJSON)
	return r
}

// ask returns the code of an answer that is read.
func (c *crowd) ask(name, method, path, body string) int {
	c.t.Helper()
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, c.request(name, method, path, strings.NewReader(body)))
	return w.Code
}

// unread is a client who reads nothing of the body of an answer.
type unread struct {
	ctx  context.Context
	head http.Header
	code int
}

func (u *unread) Header() http.Header  { return u.head }
func (u *unread) WriteHeader(code int) { u.code = code }
func (u *unread) Flush()               {}

func (u *unread) Write(b []byte) (int, error) {
	if u.code == http.StatusTooManyRequests {
		return len(b), nil
	}
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

// hold has n requests at a time whose answers nobody reads, and returns how many are not refused.
func (c *crowd) hold(n int, name, method, path string, body func() io.Reader) (held int) {
	c.t.Helper()
	refused := make(chan bool, n)
	for range n {
		c.wg.Go(func() {
			w := &unread{ctx: c.ctx, head: http.Header{}}
			c.h.ServeHTTP(w, c.request(name, method, path, body()))
			refused <- w.code == http.StatusTooManyRequests
		})
	}
	synctest.Wait()
	held = n
	for range len(refused) {
		if <-refused {
			held--
		}
	}
	return held
}

func nothing() io.Reader { return http.NoBody }

// endless is a body of which one byte comes.
type endless struct {
	ctx  context.Context
	sent bool
}

func (e *endless) Read(p []byte) (int, error) {
	if !e.sent {
		e.sent = true
		return copy(p, "{"), nil
	}
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// pod is one that has a place on the node.
func (c *crowd) pod(name string) {
	c.t.Helper()
	if code := c.ask(root, "POST", pods, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`); code != 201 {
		c.t.Fatalf("a pod is answered %d", code)
	}
}

// Whatever one user does with as many requests as it likes: others, admins and root are served, and the user has no more
// than its share.
func TestOneUserLocksNobodyOut(t *testing.T) {
	for _, tc := range []struct {
		name         string
		method, path string
		body         func(*crowd) io.Reader
		most         int // that may be at work
	}{
		{"bodies that do not end", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", func(c *crowd) io.Reader { return &endless{ctx: c.ctx} }, 600},
		{"answers that nobody reads", "GET", "/api/v1/configmaps", nil, 50},
		{"tables that nobody reads", "GET", "/api/v1/configmaps?as=Table", nil, 50},
		{"documents that nobody reads", "GET", "/openapi/v3/api/v1", nil, 50},
		{"watches", "GET", "/api/v1/configmaps?watch=1", nil, 125},
		{"logs", "GET", pods + "/p/log?follow=true", nil, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCrowd(t, func(*localapi.Config) {}, func(c *crowd) {
				c.pod("p")
				body := nothing
				if tc.body != nil {
					body = func() io.Reader { return tc.body(c) }
				}
				if held := c.hold(1000, "view-1", tc.method, tc.path, body); held > tc.most || held == 0 {
					t.Errorf("%d of 1000 are at work; want at most %d", held, tc.most)
				}
				for _, name := range []string{"view-2", "edit-1", "admin-1", root} {
					if code := c.ask(name, "GET", configMaps, ""); code != 200 {
						t.Errorf("a list for %q is answered %d", name, code)
					}
					if code := c.ask(name, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}"); code != 201 {
						t.Errorf("a review for %q is answered %d", name, code)
					}
					if code := c.ask(name, "GET", configMaps+"?watch=1&timeoutSeconds=1", ""); code != 200 {
						t.Errorf("a watch for %q is answered %d", name, code)
					}
					if held := c.hold(1, name, "GET", pods+"/p/log?follow=true", nothing); held != 1 {
						t.Errorf("a log for %q is refused", name)
					}
				}
			})
		})
	}
}

// However many users there are, admins have places; however many admins, root has.
func TestReserves(t *testing.T) {
	inCrowd(t, func(*localapi.Config) {}, func(c *crowd) {
		held := 0
		for i := range 10 {
			held += c.hold(100, fmt.Sprint("view-", i), "GET", "/api/v1/configmaps", nothing)
		}
		if held != 150 {
			t.Errorf("users have %d of 200 places, want 150", held)
		}
		if code := c.ask("admin-1", "GET", configMaps, ""); code != 200 {
			t.Errorf("an admin is answered %d", code)
		}
		for i := range 4 {
			held += c.hold(100, fmt.Sprint("admin-", i), "GET", "/api/v1/configmaps", nothing)
		}
		if held != 175 {
			t.Errorf("users and admins have %d of 200 places, want 175", held)
		}
		if code := c.ask(root, "GET", configMaps, ""); code != 200 {
			t.Errorf("root is answered %d", code)
		}
	})
}

// Answers that nobody reads hold what is encoded of one object at a time, and all of them together their budget.
func TestUnreadAnswersCostTheirBudget(t *testing.T) {
	const objects, size = 10, 100 << 10
	inCrowd(t, func(*localapi.Config) {}, func(c *crowd) {
		var snap podmgr.Snapshot
		for i := range objects {
			snap.ConfigMaps = append(snap.ConfigMaps, &v1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", i)}, Data: map[string]string{"k": strings.Repeat("x", size)},
			})
		}
		must0(t, c.Show(once(snap)).Run(c.ctx, func(podmgr.Snapshot) {}))
		h, all := c.h, c.ctx
		for _, accept := range []string{"", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
			c.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Accept", accept)
				h.ServeHTTP(w, r)
			})
			var leave func()
			c.ctx, leave = context.WithCancel(all)
			before, held := heap(), 0
			for i := range 4 {
				held += c.hold(40, fmt.Sprint("view-", i), "GET", "/api/v1/configmaps?includeObject=Object", nothing)
			}
			grown := heap() - before
			t.Logf("%q: %d lists of %d KiB each are unread; %.1f MiB", accept, held, objects*size>>10, grown)
			if held == 0 || grown > 64+16 { // with the requests themselves
				t.Errorf("%q: %d unread lists have %.1f MiB; want some, and at most 64 and what the requests have", accept, held, grown)
			}
			leave()
			synctest.Wait()
		}
	})
}

// What the agent itself calls waits for no client: the clock of the bubble would move if it did.
func TestAgentWaitsForNoClient(t *testing.T) {
	inCrowd(t, func(c *localapi.Config) { c.Describe = func(context.Context, *v1.Node) error { return nil } }, func(c *crowd) {
		c.pod("p")
		c.pod("gone")
		var list v1.PodList
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, c.request(root, "GET", pods, http.NoBody))
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 2 {
			t.Fatal(err, len(list.Items))
		}
		gone, p := &list.Items[0], &list.Items[1] // by their names
		if code := c.ask(root, "DELETE", pods+"/gone", ""); code != 200 {
			t.Fatal(code)
		}
		atWork := map[string]int{}
		for i := range 4 {
			name := fmt.Sprint("view-", i)
			atWork["lists"] += c.hold(50, name, "GET", "/api/v1/pods?labelSelector="+strings.Repeat("!a,", 99)+"!b", nothing)
			atWork["watches"] += c.hold(125, name, "GET", "/api/v1/events?watch=1", nothing)
			atWork["logs"] += c.hold(50, name, "GET", pods+"/p/log?follow=true", nothing)
			atWork["bodies"] += c.hold(500, fmt.Sprint("edit-", i), "POST", configMaps, func() io.Reader { return &endless{ctx: c.ctx} })
		}
		t.Log("at work:", atWork)
		if atWork["lists"] < 150 || atWork["watches"] < 375 || atWork["logs"] < 150 || atWork["bodies"] < 500 {
			t.Errorf("too few are at work to wait for: %v", atWork)
		}
		running := v1.PodStatus{Phase: v1.PodRunning}
		for _, tc := range []struct {
			name string
			call func()
		}{
			{"Event", func() { c.Event(p, "Normal", "Started", "m") }},
			{"ContainerEvent", func() { c.ContainerEvent(p, "c", "Normal", "Started", "m") }},
			{"NodeEvent", func() { c.NodeEvent("Normal", "Started", "m") }},
			{"Update", func() { must0(t, c.Update(c.ctx, p, running)) }},
			{"Restore", func() { c.Restore(map[types.UID]v1.PodStatus{p.UID: running}) }},
			{"Update with an end", func() { must0(t, c.Update(c.ctx, p, v1.PodStatus{Phase: v1.PodFailed})) }},
			{"Delete", func() { must0(t, c.Delete(c.ctx, gone)) }},
			{"Prune", func() { must0(t, c.Prune(map[types.UID]bool{})) }},
			{"NodeLabels", func() { c.NodeLabels() }},
			{"Show", func() {
				static := p.DeepCopy()
				static.Name, static.UID = "static", "static"
				must0(t, c.Show(once(podmgr.Snapshot{Pods: []*v1.Pod{static}})).Run(c.ctx, func(podmgr.Snapshot) {}))
			}},
		} {
			began := time.Now()
			tc.call()
			if took := time.Since(began); took != 0 {
				t.Errorf("%s takes %v while clients read nothing and send nothing", tc.name, took)
			}
		}
	})
}

func must0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// once is a source that delivers one time.
type once podmgr.Snapshot

func (once) Name() string { return "once" }

func (o once) Run(_ context.Context, deliver func(podmgr.Snapshot)) error {
	deliver(podmgr.Snapshot(o))
	return nil
}

// What is too long is refused before it is parsed, in words that say which field, its value's length, and what is allowed.
func TestHeadsAreBounded(t *testing.T) {
	a := start(t, &store.Memory{})
	for _, tc := range []struct {
		name, path string
		code       int
		says       string
	}{
		{"requirements", "/api/v1/configmaps?labelSelector=" + strings.Repeat("!a,", 100) + "!a", 400, "labelSelector has 101 requirements; want at most 100"},
		{"requirements of a watch", "/api/v1/configmaps?watch=1&labelSelector=" + strings.Repeat("!a,", 100) + "!a", 400, "labelSelector has 101 requirements; want at most 100"},
		{"a long label selector", "/api/v1/configmaps?labelSelector=a=" + strings.Repeat("x", 5000), 400, "labelSelector has 5002 bytes; want at most 4096"},
		{"a long field selector", "/api/v1/configmaps?fieldSelector=metadata.name=" + strings.Repeat("x", 5000), 400, "fieldSelector has 5014 bytes; want at most 4096"},
		{"fields", "/api/v1/configmaps?fieldSelector=" + strings.Repeat("metadata.name=a,", 100) + "metadata.name=a", 400, "fieldSelector has 101 requirements; want at most 100"},
		{"a path", "/api/v1/" + strings.Repeat("a/", 3000), 414, "the path has 6008 bytes; want at most 4096"},
		{"a query", "/api/v1/configmaps?a=" + strings.Repeat("x", 20_000), 414, "the query has 20002 bytes; want at most 16384"},
		{"a query of a watch", "/api/v1/configmaps?watch=1&a=" + strings.Repeat("x", 20_000), 414, "the query has 20010 bytes; want at most 16384"},
		{"a command", pods + "/p/exec?command=" + strings.Repeat("x", 200_000), 414, "the query has 200008 bytes; want at most 131072"},
		{"parameters", "/api/v1/configmaps?" + strings.Repeat("a&", 1000), 400, "the query has 1001 parameters; want at most 1000"},
	} {
		if s := a.refused("GET", tc.path, "", "", tc.code, metav1.StatusReasonBadRequest, tc.says); s.Message == "" {
			t.Errorf("%s is not refused", tc.name)
		}
	}
	if code, text := a.do("GET", "/api/v1/configmaps", "", "", "X-A", strings.Repeat("x", 20_000)); code != 431 || !strings.Contains(text, "want at most 16384") {
		t.Errorf("a long header is answered %d %s", code, text)
	}
	// What has its bounds.
	for _, path := range []string{
		"/api/v1/configmaps?labelSelector=" + strings.Repeat("!a,", 99) + "!a", "/api/v1/configmaps?labelSelector=a+in+(" + strings.Repeat("x,", 1000) + "x)",
	} {
		if code, text := a.do("GET", path, "", ""); code != 200 {
			t.Errorf("%.60s: %d %s", path, code, text)
		}
	}
	a.refused("POST", configMaps, asJSON, `{"data":{"k":"`+strings.Repeat("x", 4<<20)+`"}}`, 413, metav1.StatusReasonRequestEntityTooLarge, "the body has more than 3145728 bytes")
}

// The events of one pod do not drive out those of others, and those of a namespace with many pods not those of another.
func TestEventsOfOthersStay(t *testing.T) {
	inCrowd(t, func(c *localapi.Config) { c.MaxEvents = 100 }, func(c *crowd) {
		pod := func(namespace, name string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
		}
		count := func(namespace string) (n int, messages string) {
			w := httptest.NewRecorder()
			c.h.ServeHTTP(w, c.request(root, "GET", "/api/v1/namespaces/"+namespace+"/events", http.NoBody))
			var l v1.EventList
			must0(t, json.Unmarshal(w.Body.Bytes(), &l))
			for _, e := range l.Items {
				messages += e.Message + "\n"
			}
			return len(l.Items), messages
		}
		for _, namespace := range []string{"quiet", "loud"} {
			if code := c.ask(root, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`); code != 201 {
				t.Fatal(code)
			}
		}
		for i := range 20 {
			c.Event(pod("quiet", fmt.Sprint("q", i)), "Normal", "Started", "m")
		}
		for i := range 1000 {
			c.Event(pod("loud", "l"), "Warning", "Unhealthy", fmt.Sprint("text ", i))
			time.Sleep(time.Millisecond)
		}
		if n, messages := count("loud"); n > 10 || !strings.Contains(messages, "(combined from similar events): text") {
			t.Errorf("a pod with 1000 texts has %d events: %s", n, messages)
		}
		for i := range 1000 {
			c.Event(pod("loud", fmt.Sprint("l", i)), "Warning", "Unhealthy", "m")
			time.Sleep(time.Millisecond)
		}
		if n, _ := count("quiet"); n != 20 {
			t.Errorf("of 20 events of another namespace %d are left", n)
		}
		if n, _ := count("loud"); n > 80 {
			t.Errorf("a namespace has %d of 100 events beside another one's 20", n)
		}
	})
}

// A body has its time.
func TestBodyThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := localapi.New(localapi.Config{Node: "node-1", Store: &store.Memory{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodPost, configMaps, w.body())
		srv.Handler(localapi.Root).ServeHTTP(w, r)
		if took := time.Since(began); w.Code != http.StatusRequestTimeout || took != 10*time.Second {
			t.Errorf("it is answered %d %s after %v, want 408 after 10s", w.Code, w.Body, took)
		}
		cancel()
		must0(t, <-ended)
	})
}

// timed is a connection with a deadline for reading.
type timed struct {
	*httptest.ResponseRecorder

	until time.Time
}

func (w *timed) SetReadDeadline(at time.Time) error {
	w.until = at
	return nil
}

func (w *timed) body() io.Reader { return slowBody{w} }

type slowBody struct{ w *timed }

func (b slowBody) Read(p []byte) (int, error) {
	if time.Sleep(time.Second); !time.Now().Before(b.w.until) {
		return 0, os.ErrDeadlineExceeded
	}
	return copy(p, " "), nil
}
