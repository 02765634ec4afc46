package podruntime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nodewright/nodewright/podlife"
)

// door is what a hook knocks at, and who knocked.
type door struct {
	*httptest.Server
	mu   sync.Mutex
	asks []*http.Request
}

func newDoor(t *testing.T, tls bool, answer http.HandlerFunc) *door {
	t.Helper()
	d := &door{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.asks = append(d.asks, r)
		d.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	})
	if tls {
		d.Server = httptest.NewTLSServer(h)
	} else {
		d.Server = httptest.NewServer(h)
	}
	t.Cleanup(d.Close)
	return d
}

func (d *door) port() intstr.IntOrString {
	return intstr.FromInt32(int32(d.Listener.Addr().(*net.TCPAddr).Port))
}

func (d *door) asked() []*http.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asks
}

// hooked runs a hook of a container with a port called web.
func hooked(t *testing.T, ctx context.Context, m *Manager, h *v1.LifecycleHandler) error {
	t.Helper()
	pod := &v1.Pod{Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: "127.0.0.1"}}}}
	c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 1}}}
	return m.runHook(ctx, pod, nil, c, "id", h)
}

func get(g v1.HTTPGetAction) *v1.LifecycleHandler { return &v1.LifecycleHandler{HTTPGet: &g} }

// Any answer is a success.
func TestHTTPHook(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, tc := range []struct {
		name   string
		tls    bool
		answer http.HandlerFunc
		action v1.HTTPGetAction
		want   string // of the request: URI, Host, then headers
	}{
		{"plain", false, status(200), v1.HTTPGetAction{Path: "/stop"}, "/stop 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"scheme in capitals", false, status(200), v1.HTTPGetAction{Path: "/stop", Scheme: v1.URISchemeHTTP}, "/stop 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"no certificate that anybody knows", true, status(200), v1.HTTPGetAction{Path: "/stop", Scheme: v1.URISchemeHTTPS}, "/stop 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"not found", false, status(404), v1.HTTPGetAction{Path: "stop"}, "/stop 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"error", false, status(500), v1.HTTPGetAction{Path: ""}, "/ 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"query", false, nil, v1.HTTPGetAction{Path: "/a%2Fb?x=1&y=2"}, "/a%2Fb?x=1&y=2 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"path that is no part of a URL", false, nil, v1.HTTPGetAction{Path: "/100%"}, "/100%25 127.0.0.1 kube-lifecycle/1.37 */*"},
		{"headers", false, nil, v1.HTTPGetAction{Path: "/", HTTPHeaders: []v1.HTTPHeader{
			{Name: "host", Value: "me.example"}, {Name: "user-agent", Value: "mine"}, {Name: "Accept", Value: "text/plain"}}}, "/ me.example mine text/plain"},
		{"no Accept", false, nil, v1.HTTPGetAction{Path: "/", HTTPHeaders: []v1.HTTPHeader{{Name: "Accept"}}}, "/ 127.0.0.1 kube-lifecycle/1.37 "},
	} {
		d := newDoor(t, tc.tls, tc.answer)
		tc.action.Port = d.port()
		m := manager(t, newMemory())
		if err := hooked(t, t.Context(), m, get(tc.action)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		asked := d.asked()
		if len(asked) != 1 {
			t.Errorf("%s: %d requests, want 1", tc.name, len(asked))
			continue
		}
		r := asked[0]
		host := strings.TrimSuffix(r.Host, ":"+tc.action.Port.String())
		got := strings.Join([]string{r.RequestURI, host, r.Header.Get("User-Agent"), r.Header.Get("Accept")}, " ")
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if n := count(t, m.met.hookFallbacks); n != 0 {
			t.Errorf("%s: %v fallbacks", tc.name, n)
		}
	}
}

// A server that does not speak TLS is asked once more, without what is secret.
func TestHTTPSHookOfAPlainServer(t *testing.T) {
	d := newDoor(t, false, nil)
	log := &events{}
	m := manager(t, newMemory())
	m.cfg.Events = log
	err := hooked(t, t.Context(), m, get(v1.HTTPGetAction{Path: "/stop?now", Port: d.port(), Scheme: v1.URISchemeHTTPS, HTTPHeaders: []v1.HTTPHeader{
		{Name: "Authorization", Value: "Bearer secret"}, {Name: "X-Kept", Value: "yes"}, {Name: "Host", Value: "me.example"}}}))
	if err != nil {
		t.Fatal(err)
	}
	asked := d.asked()
	if len(asked) != 1 || asked[0].RequestURI != "/stop?now" || asked[0].Host != "me.example" ||
		asked[0].Header.Get("X-Kept") != "yes" || asked[0].Header.Get("Authorization") != "" {
		t.Errorf("asked %+v", asked)
	}
	if n := count(t, m.met.hookFallbacks); n != 1 {
		t.Errorf("%v fallbacks counted, want 1", n)
	}
	if len(log.warnings) != 1 || !strings.HasPrefix(log.warnings[0], "LifecycleHTTPFallback: ") {
		t.Errorf("warnings %v", log.warnings)
	}
}

// A server that is not there, or breaks off, is not asked over HTTP.
func TestHTTPHookFails(t *testing.T) {
	closed := newDoor(t, false, nil)
	closed.Close()
	breaks := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	for _, tc := range []struct {
		name   string
		action v1.HTTPGetAction
		want   string
	}{
		{"nobody there", v1.HTTPGetAction{Port: closed.port()}, "connection refused"},
		{"nobody there, HTTPS", v1.HTTPGetAction{Port: closed.port(), Scheme: v1.URISchemeHTTPS}, "connection refused"},
		{"broken off", v1.HTTPGetAction{Port: newDoor(t, false, breaks).port()}, "EOF"},
		{"broken off, HTTPS", v1.HTTPGetAction{Port: newDoor(t, true, breaks).port(), Scheme: v1.URISchemeHTTPS}, "EOF"},
		{"HTTP at an HTTPS port that breaks off", v1.HTTPGetAction{Port: newDoor(t, false, breaks).port(), Scheme: v1.URISchemeHTTPS}, "EOF"},
		{"unknown port", v1.HTTPGetAction{Port: intstr.FromString("nope")}, `port "nope"`},
		{"port 0", v1.HTTPGetAction{}, `port "0"`},
		{"port out of range", v1.HTTPGetAction{Port: intstr.FromString("70000")}, `port "70000"`},
		{"other scheme", v1.HTTPGetAction{Port: closed.port(), Scheme: "FTP"}, "unsupported protocol"},
	} {
		log := &events{}
		m := manager(t, newMemory())
		m.cfg.Events = log
		err := hooked(t, t.Context(), m, get(tc.action))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "http hook: ") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if n := count(t, m.met.hookFallbacks); n != 0 || len(log.warnings) > 0 {
			t.Errorf("%s: %v fallbacks, warnings %v", tc.name, n, log.warnings)
		}
	}
	m := manager(t, newMemory())
	if err := m.runHook(t.Context(), &v1.Pod{}, nil, &v1.Container{}, "id", get(v1.HTTPGetAction{Port: intstr.FromInt32(1)})); err == nil ||
		!strings.Contains(err.Error(), "no address") {
		t.Errorf("a pod without an address: %v", err)
	}
}

// Ports are found by name first.
func TestHookPort(t *testing.T) {
	c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "80", ContainerPort: 81}}}
	for in, want := range map[string]int{"web": 8080, "80": 81, "443": 443} {
		if got, err := resolvePort(intstr.FromString(in), c); got != want || err != nil {
			t.Errorf("port %q: %d, %v; want %d", in, got, err, want)
		}
	}
}

// Redirects are followed as those of probes are: ten of them, on the same host.
func TestHookRedirects(t *testing.T) {
	elsewhere := newDoor(t, false, nil)
	to, err := url.Parse(elsewhere.URL)
	if err != nil {
		t.Fatal(err)
	}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		switch hops, _ := strconv.Atoi(r.URL.Query().Get("hops")); {
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://localhost:"+to.Port()+"/", http.StatusFound)
		case r.URL.Path == "/plain":
			http.Redirect(w, r, elsewhere.URL+"/", http.StatusFound)
		case hops > 0:
			http.Redirect(w, r, fmt.Sprintf("/?hops=%d", hops-1), http.StatusFound)
		}
	}
	for _, tc := range []struct {
		name, path string
		tls        bool
		here, away int // requests
		fails      bool
	}{
		{"one", "/?hops=1", false, 2, 0, false},
		{"as many as may be", "/?hops=9", false, 10, 0, false},
		{"too many", "/?hops=10", false, 10, 0, true},
		{"to another host", "/away", false, 1, 0, false},
		{"to another port, without TLS", "/plain", true, 1, 1, false},
	} {
		d := newDoor(t, tc.tls, redirect)
		elsewhere.asks = nil
		scheme := v1.URISchemeHTTP
		if tc.tls {
			scheme = v1.URISchemeHTTPS
		}
		err := hooked(t, t.Context(), manager(t, newMemory()), get(v1.HTTPGetAction{Path: tc.path, Port: d.port(), Scheme: scheme,
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer secret"}}}))
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.name, err)
		}
		if here, away := len(d.asked()), len(elsewhere.asked()); here != tc.here || away != tc.away {
			t.Errorf("%s: %d requests here and %d elsewhere, want %d and %d", tc.name, here, away, tc.here, tc.away)
		}
		for _, r := range elsewhere.asked() {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s: what is secret went over HTTP", tc.name)
			}
		}
	}
}

// Of an answer without end no more is read than 10 KiB, and a little that is
// under way.
func TestHookReadsLittle(t *testing.T) {
	ended := make(chan int, 1)
	d := newDoor(t, false, func(w http.ResponseWriter, r *http.Request) {
		sent := 0
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 64<<10))
			if sent += n; err != nil {
				break
			}
		}
		ended <- sent
	})
	if err := hooked(t, t.Context(), manager(t, newMemory()), get(v1.HTTPGetAction{Port: d.port()})); err != nil {
		t.Fatal(err)
	}
	if sent := <-ended; sent < hookBody {
		t.Errorf("the server was cut off after %d bytes, want at least %d", sent, hookBody)
	}
}

// A server that hangs, before its answer or within it, is left when the time is
// over. Once it has answered, the hook has run.
func TestHookThatHangs(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			wire := bufconn.Listen(1 << 16)
			d := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begun {
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})}
			go func() { _ = d.Serve(wire) }()
			defer func() { _ = d.Close() }()
			m := manager(t, newMemory())
			m.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return wire.DialContext(ctx) }
			const limit = time.Second
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err := hooked(t, ctx, m, get(v1.HTTPGetAction{Port: intstr.FromInt32(1)}))
			if begun != (err == nil) || !begun && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("answer begun %v: %v", begun, err)
			}
			if took := time.Since(began); took != limit {
				t.Errorf("answer begun %v: it took %v, want %v", begun, took, limit)
			}
		})
	}
}

func TestSleepHook(t *testing.T) {
	for _, tc := range []struct {
		name       string
		sleep, end time.Duration // of the hook; of the context
		want       time.Duration
		cut        bool
	}{
		{"zero", 0, time.Hour, 0, false},
		{"whole", 5 * time.Second, time.Hour, 5 * time.Second, false},
		{"as long as the grace period", 5 * time.Second, 5 * time.Second, 5 * time.Second, false},
		{"cut short", 5 * time.Second, 3 * time.Second, 3 * time.Second, true},
		{"longer than other hooks may take", 3 * hookLimit, 0, 3 * hookLimit, false},
	} {
		for range 20 { // two timers that end at one moment: the order must not matter
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if tc.end > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), tc.end)
				}
				defer cancel()
				m := manager(t, newMemory())
				start := time.Now()
				err := hooked(t, ctx, m, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: int64(tc.sleep / time.Second)}})
				if (err != nil) != tc.cut || time.Since(start) != tc.want {
					t.Errorf("%s: %v after %v, want %v", tc.name, err, time.Since(start), tc.want)
				}
				if n := count(t, m.met.sleepsCut); (n == 1) != tc.cut {
					t.Errorf("%s: %v counted", tc.name, n)
				}
			})
		}
	}
}

func TestHookWithoutAnAction(t *testing.T) {
	m := manager(t, newMemory())
	for want, h := range map[string]*v1.LifecycleHandler{
		"tcpSocket": {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}, "hook is empty": {},
	} {
		if err := hooked(t, t.Context(), m, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// patient is a runtime whose commands take as long as they are given.
type patient struct {
	*memory
	took, given time.Duration
}

func (p *patient) ExecSync(ctx context.Context, _ string, _ []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	p.given = timeout
	start := time.Now()
	<-ctx.Done()
	p.took = time.Since(start)
	return nil, nil, ctx.Err()
}

// onlooker notes what runs while a hook does.
type onlooker struct {
	*memory
	during map[string]int
}

func (o *onlooker) ExecSync(context.Context, string, []string, time.Duration) ([]byte, []byte, error) {
	time.Sleep(time.Second)
	o.during = o.live()
	return nil, nil, nil
}

// A postStart hook holds back the containers after its own, and no others.
func TestPostStartHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := &onlooker{memory: newMemory()}, build(v1.RestartPolicyAlways, nil, "a", "b", "c", "d")
		w.pod.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}
		m := manager(t, r.memory)
		m.rt = r
		mustSync(t, m, request(t, w, r.look()))
		if d := r.during; d["a"] != 1 || d["b"] != 1 || d["c"] != 0 || d["d"] != 0 {
			t.Errorf("while b's hook runs: %v", d)
		}
		if n := r.live(); n["c"] != 1 || n["d"] != 1 {
			t.Errorf("after it: %v", n)
		}
	})
}

// A preStop hook has its grace period, be it longer than a hook may otherwise
// take, and goes on until the container is gone; a postStart hook that hangs does not hang for ever.
func TestHookLimits(t *testing.T) {
	exec := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}
	synctest.Test(t, func(t *testing.T) {
		r, w := &patient{memory: newMemory()}, build(v1.RestartPolicyAlways, nil, "a")
		w.pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
		w.pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: exec}
		log := &events{}
		m := manager(t, r.memory)
		m.rt, m.cfg.Events = r, log
		mustSync(t, m, request(t, w, r.look()))
		if err := m.Kill(t.Context(), w.pod, r.look(), nil); err != nil {
			t.Error(err)
		}
		if r.took != time.Hour || r.given != time.Hour+minGrace*time.Second {
			t.Errorf("preStop ended after %v, given %v; want 1h, and what the container has", r.took, r.given)
		}
		if len(log.warnings) != 1 || log.warnings[0] != "FailedPreStopHook: PreStopHook failed" {
			t.Errorf("warnings %v", log.warnings)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, w := &patient{memory: newMemory()}, build(v1.RestartPolicyAlways, nil, "a")
		w.pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: exec}
		log := &events{}
		m := manager(t, r.memory)
		m.rt, m.cfg.Events = r, log
		res := m.Sync(t.Context(), request(t, w, r.look()))
		if reasonOf(res.Err()) != string(podlife.HookFailed) || r.took != hookLimit || r.live()["a"] != 0 {
			t.Errorf("postStart ended after %v with %v; running: %v", r.took, res.Err(), r.live())
		}
		if len(log.warnings) != 1 || log.warnings[0] != "FailedPostStartHook: PostStartHook failed" {
			t.Errorf("warnings %v", log.warnings)
		}
	})
}
