package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

// agent answers as the test says.
type agent struct {
	pods     []v1.Pod
	text     string // of every message
	cordoned bool
	hangs    bool
	err      error
	log      func() io.ReadCloser

	histories atomic.Int32 // how often the history was read
}

func (a *agent) answer(ctx context.Context) error {
	if a.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.err
}

func (a *agent) Pods(ctx context.Context) (*v1.PodList, error) {
	return &v1.PodList{Items: slices.Clone(a.pods)}, a.answer(ctx)
}

func (a *agent) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	for i := range a.pods {
		if p := &a.pods[i]; p.Namespace == namespace && p.Name == name {
			return p, a.answer(ctx)
		}
	}
	return nil, fmt.Errorf("no pod %s: %w", name, local.ErrNotFound)
}

func (a *agent) Events(ctx context.Context, namespace, name string) (*v1.EventList, error) {
	return &v1.EventList{Items: []v1.Event{{
		InvolvedObject: v1.ObjectReference{Namespace: namespace, Name: name}, Type: v1.EventTypeWarning, Reason: "Reason" + a.text, Message: "event " + a.text,
		LastTimestamp: metav1.Now(),
	}}}, a.answer(ctx)
}

func (a *agent) Why(ctx context.Context, namespace, name string) (*local.Why, error) {
	return a.whyOf(namespace, name, name), a.answer(ctx)
}

func (a *agent) whyOf(namespace, name, uid string) *local.Why {
	return &local.Why{
		Namespace: namespace, Name: name, UID: uid, Stage: "sync", Good: name == "web", State: "does not run", Cause: "it waits for an image " + a.text,
		Evidence: []string{"evidence " + a.text}, Do: []string{"load " + a.text}, NextAt: time.Now().Add(time.Minute), LastError: a.text,
	}
}

func (a *agent) Whys(ctx context.Context) (all []local.Why, err error) {
	for i := range a.pods {
		all = append(all, *a.whyOf(a.pods[i].Namespace, a.pods[i].Name, string(a.pods[i].UID)))
	}
	return all, a.answer(ctx)
}

func (a *agent) AllEvents(ctx context.Context) (*v1.EventList, error) {
	all := &v1.EventList{}
	for i := range a.pods {
		events, err := a.Events(ctx, a.pods[i].Namespace, a.pods[i].Name)
		if err != nil {
			return nil, err
		}
		all.Items = append(all.Items, events.Items...)
	}
	return all, a.answer(ctx)
}

func (a *agent) WhyNode(ctx context.Context) (*local.NodeWhy, error) {
	return &local.NodeWhy{
		Name: "lab", Runtime: "localcri", Network: "bridge " + a.text,
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Message: a.text}, {Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue}},
		Figures:    []local.NodeFigure{{Signal: "memory.available", Available: "1Gi", Capacity: "4Gi", Threshold: "100Mi"}},
		Decisions:  []local.NodeDecision{{Time: time.Now(), What: "memory.available", Outcome: "evicted " + a.text}},
	}, a.answer(ctx)
}

func (a *agent) Problems(ctx context.Context) ([]local.Problem, error) {
	return []local.Problem{{File: "web.yaml", Pod: a.text, Field: "spec.x", Reason: "unknown field " + a.text}}, a.answer(ctx)
}

func (a *agent) Images(ctx context.Context) (*local.Images, error) {
	return &local.Images{Summary: "half full", Images: []local.Image{{Name: "img" + a.text, Size: 1 << 20, Verdict: "in use", Why: a.text}}}, a.answer(ctx)
}

func (a *agent) Summary(ctx context.Context, _ bool) (*statsapi.Summary, error) {
	var s statsapi.Summary
	s.Node.CPU = &statsapi.CPUStats{UsageNanoCores: new(uint64(1_500_000_000))}
	s.Node.Memory = &statsapi.MemoryStats{WorkingSetBytes: new(uint64(3 << 30))}
	for i, p := range a.pods {
		s.Pods = append(s.Pods, statsapi.PodStats{PodRef: statsapi.PodReference{UID: string(p.UID)}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(i+1) << 20)}})
	}
	return &s, a.answer(ctx)
}

func (a *agent) Node(ctx context.Context) (*v1.Node, error) {
	n := &v1.Node{}
	n.Status.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi")}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n.Status.NodeInfo.OSImage, n.Spec.Unschedulable = a.text, a.cordoned
	return n, a.answer(ctx)
}

func (a *agent) History(ctx context.Context) (*local.Usage, error) {
	a.histories.Add(1)
	u := &local.Usage{Pods: map[string]local.PodUsage{}}
	for i := range 120 {
		u.Times = append(u.Times, time.Now().Add(time.Duration(i-119)*30*time.Second))
		u.Node.CPU, u.Node.Memory = append(u.Node.CPU, int64(i*10)), append(u.Node.Memory, 3<<30)
		u.Node.Disk, u.Node.Received, u.Node.Sent = append(u.Node.Disk, 3<<30), append(u.Node.Received, 1000), append(u.Node.Sent, 2048)
	}
	u.Node.DiskSize = 4 << 30
	for i := range a.pods {
		u.Pods[string(a.pods[i].UID)] = local.PodUsage{CPU: u.Node.CPU, Memory: u.Node.Memory}
	}
	return u, a.answer(ctx)
}

func (a *agent) Log(ctx context.Context, _, _ string, o local.LogOptions) (io.ReadCloser, error) {
	if err := a.answer(ctx); err != nil {
		return nil, err
	}
	if a.log != nil && o.Follow {
		return a.log(), nil
	}
	return io.NopCloser(strings.NewReader("line " + a.text + "\n")), nil
}

// logging tells which log it was asked for.
type logging struct {
	*agent
	asked chan local.LogOptions
}

func (l *logging) Log(ctx context.Context, namespace, name string, o local.LogOptions) (io.ReadCloser, error) {
	l.asked <- o
	return l.agent.Log(ctx, namespace, name, o)
}

func mustQuantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func pod(name string, phase v1.PodPhase, ready v1.ConditionStatus) v1.Pod {
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "img"}}},
		Status: v1.PodStatus{
			Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", Ready: ready == v1.ConditionTrue, RestartCount: 3, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
		},
	}
}

func newPage(t *testing.T, a local.PageAgent) *local.Page {
	t.Helper()
	p, err := local.NewPage(local.PageConfig{Agent: a})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestPages(t *testing.T) {
	crash := pod("crash", v1.PodRunning, v1.ConditionFalse)
	crash.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	p := newPage(t, &agent{pods: []v1.Pod{pod("web", v1.PodRunning, v1.ConditionTrue), crash}})
	for path, want := range map[string][]string{
		"/": {
			"<title>lab: 1 broken</title>", "<h1>lab</h1>", `<a href="pods/default/web">web</a>`, ">CrashLoopBackOff</td>", "<div>it waits for an image </div>", "event ", "web.yaml", "evicted",
			"Evicted first", "half full", `<p class="pill ok">Ready</p>`, "<b>1</b> of 2 pods run", "<b>1</b> broken", "<b>1</b> mistake in manifests<", "CPU <b>75 %</b>", "memory <b>75 %</b>", "disk <b>75 %</b>",
			"runtime localcri", `aria-label="CPU in the last hour: now 1.19 of 2, 60 %; highest 1.19"`, "eviction at 3.9 GiB", "Network <b>in 1000 B/s, out 2 KiB/s</b>",
		},
		"/?part":                    {"<h1>lab</h1>"},
		"/pods/default/crash":       {`<span class="dim">default/</span>crash</h1>`, "It does not run: it waits for an image", "<li>evidence </li>", "next look: ", "<li>load </li>", "waits: CrashLoopBackOff: back-off 10s", "line ", `data-log="../../logs/default/crash/c"`},
		"/logs/default/crash/c":     {"line "},
		"/logs/default/crash/c?x=y": {"line "},
	} {
		w := get(p, path)
		body := w.Body.String()
		for _, s := range want {
			if !strings.Contains(strings.ToLower(body), strings.ToLower(s)) {
				t.Errorf("%s has no %q:\n%s", path, s, body)
			}
		}
		if strings.Contains(path, "part") == strings.Contains(body, "<html") && !strings.HasPrefix(path, "/logs") {
			t.Errorf("%s: a whole page: %v", path, strings.Contains(body, "<html"))
		}
		if h := w.Header().Get("Content-Security-Policy"); !strings.Contains(h, "default-src 'none'") || strings.Contains(h, "unsafe") {
			t.Errorf("%s: policy %q", path, h)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: header %v", path, w.Header())
		}
	}
	if strings.Index(get(p, "/").Body.String(), "crash") > strings.Index(get(p, "/").Body.String(), `default/web"`) {
		t.Error("a pod in trouble is not the first")
	}
	for path, want := range map[string]int{
		"/pods/default/none": http.StatusNotFound, "/else": http.StatusNotFound, "/logs/default/crash/c?tail=-1": http.StatusBadRequest,
		"/logs/default/crash/c?tail=9999999": http.StatusBadRequest,
	} {
		if w := get(p, path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	if _, err := local.NewPage(local.PageConfig{}); err == nil {
		t.Error("a page without an agent")
	}
}

func TestPageShowsThatTheNodeIsCordoned(t *testing.T) {
	const want = `<p class="pill starting">Ready, cordoned</p>`
	if body := get(newPage(t, &agent{cordoned: true}), "/").Body.String(); !strings.Contains(body, want) {
		t.Errorf("no %q:\n%s", want, body)
	}
}

// The page of a pod has its YAML, without values that may be secret.
func TestPageOfAPodHasItsYAML(t *testing.T) {
	p := pod("web", v1.PodRunning, v1.ConditionTrue)
	const secret = "hunter2"
	check := &v1.HTTPGetAction{Path: "/healthz", HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: secret}}}
	env := []v1.EnvVar{{Name: "TOKEN", Value: secret}, {Name: "NODE", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	p.Annotations = map[string]string{v1.LastAppliedConfigAnnotation: secret}
	c := &p.Spec.Containers[0]
	c.Env, c.LivenessProbe = env, &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: check}}
	c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: check}}
	p.Spec.InitContainers = []v1.Container{{Name: "before", Env: env}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "look", Env: env}}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", VolumeAttributes: map[string]string{"password": secret}}}},
		{Name: "b", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{Driver: "d", Options: map[string]string{"password": secret}}}},
	}
	body := get(newPage(t, &agent{pods: []v1.Pod{p}}), "/pods/default/web").Body.String()
	_, yaml, _ := strings.Cut(body, `<details id="yaml">`)
	yaml, _, _ = strings.Cut(yaml, "</details>")
	for _, want := range []string{"kind: Pod\n", "  name: web\n", "- name: TOKEN\n      value: (not shown)\n", "fieldPath: spec.nodeName\n", "path: /healthz\n", "password: (not shown)\n", "name: look\n"} {
		if !strings.Contains(yaml, want) {
			t.Errorf("no %q in\n%s", want, yaml)
		}
	}
	if strings.Contains(yaml, secret) {
		t.Errorf("a secret in\n%s", yaml)
	}
}

// All open pages share one history, until there may be a new measurement.
func TestPagesShareOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{pods: []v1.Pod{pod("web", v1.PodRunning, v1.ConditionTrue)}}
		p := newPage(t, a)
		for range 20 { // a minute of two pages
			for _, path := range []string{"/?part", "/pods/default/web?part"} {
				if body := get(p, path).Body.String(); !strings.Contains(body, "Last hour") {
					t.Fatalf("%s has no charts:\n%s", path, body)
				}
			}
			time.Sleep(3 * time.Second)
		}
		if n := a.histories.Load(); n != 4 {
			t.Errorf("the history was read %d times in a minute, want 4", n)
		}
		a.err = errors.New("gone")
		time.Sleep(time.Minute)
		get(p, "/")
		a.err = nil
		if body := get(p, "/").Body.String(); !strings.Contains(body, "Last hour") {
			t.Errorf("no charts after an error:\n%s", body)
		}
	})
}

// Whatever pods, images and manifests say is text, and their names lead nowhere else.
func TestTextStaysText(t *testing.T) {
	for _, evil := range []string{
		`</td><script>alert(1)</script><img src=x onerror="alert(2)">`,
		`" onmouseover="alert(1)" x='`,
		`' onmouseover=alert(1) x="`,
		"javascript:alert(1)",
		"https://evil.example/",
		"//evil.example/?a=b#c",
		`..\..\evil`,
		`{{.Nonce}}<!--`,
		"</pre></title></style><base href=https://evil.example/>",
		"\x00\xff\u202e\n",
	} {
		bad := pod(evil, v1.PodRunning, v1.ConditionFalse)
		bad.Namespace = evil
		bad.Spec.Containers[0].Name = evil
		bad.Status.Reason, bad.Status.PodIPs, bad.Status.QOSClass = evil, []v1.PodIP{{IP: evil}}, v1.PodQOSClass(evil)
		bad.Status.ContainerStatuses[0].Name, bad.Status.ContainerStatuses[0].Image = evil, evil
		bad.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: evil, Message: evil}}
		bad.Status.ContainerStatuses[0].LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: evil}}
		p := newPage(t, &agent{pods: []v1.Pod{bad}, text: evil})
		escaped := url.PathEscape(evil) + "/" + url.PathEscape(evil)
		links := checkPage(t, get(p, "/").Body.String(), "http://node/")
		if want := "/pods/" + escaped; !slices.Contains(links, want) {
			t.Errorf("%q: links %q; want %q among them", evil, links, want)
		}
		links = checkPage(t, get(p, "/pods/"+escaped).Body.String(), "http://node/pods/"+escaped)
		for _, want := range []string{"/", "/logs/" + escaped + "/" + url.PathEscape(evil)} {
			if !slices.Contains(links, want) {
				t.Errorf("%q: links %q; want %q among them", evil, links, want)
			}
		}
		checkPage(t, get(newPage(t, &agent{err: errors.New(evil)}), "/").Body.String(), "http://node/")
		checkPage(t, get(newPage(t, &agent{err: errors.New(evil)}), "/pods/"+escaped).Body.String(), "http://node/pods/"+escaped)
	}
}

// attributes are those that pages have, beside links.
var attributes = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`aria-hidden aria-label aria-labelledby aria-live aria-pressed autocomplete charset checked class colspan content
		d data-container data-key data-title datetime defer download dx dy height hidden id lang maxlength method name placeholder points
		preserveAspectRatio rel role scope selected spellcheck tabindex title type value viewBox width x y`) {
		all[name] = true
	}
	return all
}()

// checkPage parses a page as a browser does, fails if it has elements or attributes that
// are not the page's own, and returns the paths of what it links to.
func checkPage(t *testing.T, body, at string) (paths []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for n := range root.Descendants() {
		switch n.Type {
		case html.CommentNode:
			t.Errorf("comment %q in\n%s", n.Data, body)
		case html.ElementNode:
			count[n.Data]++
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src", "data-log":
				u, err := base.Parse(a.Val)
				if a.Val == "data:," {
					continue
				}
				if err != nil || u.Scheme != "http" || u.Host != "node" {
					t.Errorf("%s=%q leads to %v, %v", a.Key, a.Val, u, err)
					continue
				}
				paths = append(paths, u.EscapedPath())
			default:
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || !attributes[a.Key] {
					t.Errorf("attribute %s=%q in\n%s", a.Key, a.Val, body)
				}
			}
		}
	}
	for name, most := range map[string]int{"script": 1, "style": 0, "title": 1, "base": 0, "img": 0, "iframe": 0, "form": 1, "object": 0} {
		if count[name] > most {
			t.Errorf("%d elements %s in\n%s", count[name], name, body)
		}
	}
	return paths
}

// What is long or many is cut.
func TestPageIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	p := pod("web", v1.PodRunning, v1.ConditionFalse)
	for i := range 1000 {
		name := fmt.Sprintf("c%d", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Message: long}}})
	}
	for path, most := range map[string]int{"/": 64 << 10, "/pods/default/web": 5 << 20} {
		body := get(newPage(t, &agent{pods: []v1.Pod{p}, text: long}), path).Body.String()
		if len(body) > most || !utf8.ValidString(body) {
			t.Errorf("%s has %d bytes, valid %v; want at most %d", path, len(body), utf8.ValidString(body), most)
		}
		if n := strings.Count(body, `data-log=`); n > 100 {
			t.Errorf("%s: %d logs", path, n)
		}
	}
}

// An agent that does not answer costs a page a few seconds, and at most eight of them.
func TestAgentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, &agent{hangs: true})
		begun := time.Now()
		codes := make(chan int, 20)
		for range 20 {
			go func() { codes <- get(p, "/").Code }()
		}
		count := map[int]int{}
		for range 20 {
			count[<-codes]++
		}
		if took := time.Since(begun); took > 10*time.Second || count[http.StatusOK] != 8 || count[http.StatusTooManyRequests] != 12 {
			t.Errorf("%v after %v", count, took)
		}
	})
}

func TestManyPods(t *testing.T) {
	a := &agent{}
	for i := range local.MaxPagePods + 7 {
		a.pods = append(a.pods, pod(fmt.Sprintf("p%d", i), v1.PodRunning, v1.ConditionTrue))
	}
	if body := get(newPage(t, a), "/").Body.String(); strings.Count(body, `<a href="pods/`) != local.MaxPagePods || !strings.Contains(body, "7 more are not shown") || !strings.Contains(body, "<b>507</b> broken") {
		t.Errorf("%d pods", strings.Count(body, `<a href="pods/`))
	}
}

func TestToken(t *testing.T) {
	h := local.WithToken(newPage(t, &agent{}), "secret", "lab.example")
	ask := func(host, path, cookie string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: "nodewright-ui", Value: cookie})
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, tc := range []struct {
		host, path, cookie string
		want               int
	}{
		{"localhost:1", "/", "", 403},
		{"localhost:1", "/?token=wrong", "", 403},
		{"localhost:1", "/?token=", "", 403},
		{"localhost:1", "/", "wrong", 403},
		{"localhost:1", "/", "secret", 200},
		{"127.0.0.1:1", "/", "secret", 200},
		{"[::1]:1", "/", "secret", 200},
		{"LAB.example", "/", "secret", 200},
		{"evil.example:1", "/", "secret", 421},
		{"evil.example:1", "/?token=secret", "", 421},
	} {
		if w := ask(tc.host, tc.path, tc.cookie); w.Code != tc.want {
			t.Errorf("%+v: %d", tc, w.Code)
		}
	}
	w := ask("localhost:1", "/pods/a/b?token=secret", "")
	if c := w.Result().Cookies(); w.Code != 303 || w.Header().Get("Location") != "/pods/a/b" || len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := ask("localhost:1", "//evil.example?token=secret", ""); w.Header().Get("Location") != "/evil.example" {
		t.Errorf("redirected to %s", w.Header().Get("Location"))
	}
	if w := httptest.NewRecorder(); true {
		local.WithToken(newPage(t, &agent{}), "").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/?token=", nil))
		if w.Code != 403 {
			t.Errorf("without a token: %d", w.Code)
		}
	}
}
