package local_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// document is a page, parsed.
type document struct {
	*testing.T
	root *html.Node
	ids  map[string]bool
}

func parsed(t *testing.T, body string) *document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t, root, map[string]bool{}}
	for n := range root.Descendants() {
		if id := attr(n, "id"); id != "" {
			if d.ids[id] {
				t.Errorf("two elements have the ID %s", id)
			}
			d.ids[id] = true
		}
	}
	return d
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text is what an element says.
func text(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

func within(n *html.Node, names ...string) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if slices.Contains(names, p.Data) {
			return true
		}
	}
	return false
}

// Whoever hears a page, or has a keyboard alone, finds everything in it: landmarks, names of controls and
// pictures, heads of tables, and what tells of changes.
func TestPagesForAll(t *testing.T) {
	crash := pod("crash", v1.PodRunning, v1.ConditionFalse)
	crash.Labels = map[string]string{"app": "x"}
	a := &agent{pods: []v1.Pod{pod("web", v1.PodRunning, v1.ConditionTrue), crash}}
	for what, body := range map[string]string{
		"the first page":         get(newPage(t, a), "/").Body.String(),
		"nothing found":          get(newPage(t, a), "/?q=nothing").Body.String(),
		"a pod":                  get(newPage(t, a), "/pods/default/crash").Body.String(),
		"no such pod":            get(newPage(t, a), "/pods/default/none").Body.String(),
		"no answer":              get(newPage(t, &agent{err: errors.New("down")}), "/").Body.String(),
		"no answer about a pod":  get(newPage(t, &agent{pods: a.pods, err: errors.New("down")}), "/pods/default/web").Body.String(),
		"an agent without a pod": get(newPage(t, &agent{}), "/").Body.String(),
		"a pod with a past":      get(newPageWithPast(t, a, crashes(3)), "/pods/default/crash").Body.String(),
		"no answer, with a past": get(newPageWithPast(t, &agent{pods: a.pods, err: errors.New("down")}, crashes(3)), "/pods/default/web").Body.String(),
		"a pod that is gone":     get(newPageWithPast(t, a, crashes(3)), "/pods/default/gone").Body.String(),
	} {
		t.Run(what, func(t *testing.T) { parsed(t, body).check() })
	}
}

func (d *document) check() {
	count := map[string]int{}
	for n := range d.root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data != "title" || !within(n, "svg") {
			count[n.Data]++
		}
		count["role "+attr(n, "role")]++
		name := attr(n, "aria-label")
		if id := attr(n, "aria-labelledby"); id != "" {
			if !d.ids[id] {
				d.Errorf("<%s> is labelled by %q, which is not there", n.Data, id)
			}
			name = id
		}
		if to := attr(n, "href"); strings.HasPrefix(to, "#") && !d.ids[to[1:]] {
			d.Errorf("a link to %s, which is not there", to)
		}
		switch n.Data {
		case "html":
			if attr(n, "lang") == "" {
				d.Error("the language is not told")
			}
		case "title", "h1", "h2", "h3", "a", "button", "summary", "legend", "caption":
			if text(n) == "" && name == "" {
				d.Errorf("<%s> says nothing", n.Data)
			}
		case "input", "select":
			if name == "" && !within(n, "label") {
				d.Errorf("<%s name=%s> has no name", n.Data, attr(n, "name"))
			}
		case "section", "article", "form", "nav":
			if name == "" {
				d.Errorf("<%s id=%s> has no name", n.Data, attr(n, "id"))
			}
		case "svg":
			role := attr(n, "role")
			for c := range n.Descendants() {
				if role == "img" && c.Data == "a" {
					d.Error("a link in a picture, which nobody hears")
				}
			}
			if attr(n, "aria-hidden") != "true" && (role != "img" && role != "group" || name == "") {
				d.Error("a picture without words")
			}
		case "table":
			if n.FirstChild == nil || n.FirstChild.Data != "caption" {
				d.Error("a table without a caption")
			}
		case "th":
			if s := attr(n, "scope"); s != "col" && s != "row" || text(n) == "" {
				d.Errorf("a head of a table with the scope %q: %q", s, text(n))
			}
		case "pre":
			if attr(n, "tabindex") != "0" {
				d.Error("a log that a keyboard cannot scroll")
			}
		}
	}
	for name, want := range map[string]int{"main": 1, "h1": 1, "title": 1, "role alert": count["role alert"]} {
		if count[name] != want {
			d.Errorf("%d of %s; want %d", count[name], name, want)
		}
	}
	if count["role alert"] == 0 {
		d.Error("nothing tells that the agent does not answer")
	}
}

// colours of page.css: each text against each ground that it may stand on, and lines that mean something
// against the page, in light and in dark.
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(css, -1)
	rest := regexp.MustCompile(`(?s):root \{.*?\}`).ReplaceAll(css, nil)
	if found := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(|opacity: 0?\.`).FindAll(rest, -1); len(found) > 0 {
		t.Errorf("colours beside the variables: %s", found)
	}
	if len(blocks) != 2 {
		t.Fatalf("%d sets of colours; want a light and a dark one", len(blocks))
	}
	colours := map[string]float64{}
	for i, b := range blocks {
		theme := []string{"light", "dark"}[i]
		for _, m := range regexp.MustCompile(`--(\w+): #(\w{6});`).FindAllSubmatch(b[1], -1) {
			colours[string(m[1])] = luminance(t, string(m[2]))
		}
		for _, fore := range []string{"text", "dim", "link", "bad", "warn", "good"} {
			for _, back := range []string{"back", "panel", "badback"} {
				if c := contrast(colours[fore], colours[back]); c < 4.5 {
					t.Errorf("%s: %s on %s: %.2f; want 4.5", theme, fore, back, c)
				}
			}
		}
		for _, line := range []string{"edge", "chart", "chart2"} {
			for _, back := range []string{"back", "badback"} {
				if c := contrast(colours[line], colours[back]); c < 3 {
					t.Errorf("%s: %s on %s: %.2f; want 3", theme, line, back, c)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`var\(--(\w+)\)`).FindAllSubmatch(rest, -1) {
		if _, ok := colours[string(m[1])]; !ok {
			t.Errorf("there is no --%s", m[1])
		}
	}
}

// luminance is the relative one of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	part := func(shift int) float64 {
		v := float64(n>>shift&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return .2126*part(16) + .7152*part(8) + .0722*part(0)
}

func contrast(a, b float64) float64 { return (max(a, b) + .05) / (min(a, b) + .05) }

// The address says which pods are shown, and in which order.
func TestFilter(t *testing.T) {
	now := metav1.Now()
	web, shop, job, ending := pod("web", v1.PodRunning, v1.ConditionTrue), pod("crash", v1.PodRunning, v1.ConditionFalse), pod("web", v1.PodSucceeded, v1.ConditionFalse), pod("end", v1.PodRunning, v1.ConditionTrue)
	web.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	shop.Namespace, shop.Spec.Containers[0].Image = "shop", "registry.example/pump:7"
	job.Namespace, job.UID, job.Status.ContainerStatuses[0].RestartCount = "jobs", "job", 9
	ending.DeletionTimestamp = &now
	p := newPage(t, &agent{pods: []v1.Pod{web, shop, job, ending}})
	for query, want := range map[string][]string{
		"":                       {"shop/crash", "default/end", "default/web", "jobs/web"},
		"q=WEB":                  {"default/web", "jobs/web"},
		"q=default/w":            {"default/web"},
		"q=pump":                 {"shop/crash"},
		"q=waits+image":          {"shop/crash", "default/end"},
		"q=waits+nothing":        nil,
		"q=%3Cscript%3E":         nil,
		"ns=jobs":                {"jobs/web"},
		"ns=jobs&q=crash":        nil,
		"state=bad":              {"shop/crash"},
		"state=ok":               {"default/web"},
		"state=ending":           {"default/end"},
		"state=done":             {"jobs/web"},
		"state=other":            nil,
		"sort=name":              {"default/end", "default/web", "jobs/web", "shop/crash"},
		"sort=age&ns=default":    {"default/web", "default/end"},
		"sort=restarts":          {"jobs/web", "default/end", "default/web", "shop/crash"},
		"sort=memory":            {"default/end", "jobs/web", "shop/crash", "default/web"},
		"sort=other&q=web":       {"default/web", "jobs/web"},
		"q=" + longText(1000):    nil,
		"q=web%ff%00&part=&ns=x": nil,
	} {
		w := get(p, "/?"+query)
		d := parsed(t, w.Body.String())
		var got []string
		for n := range d.root.Descendants() {
			if to := attr(n, "href"); n.Data == "a" && strings.HasPrefix(to, "pods/") {
				got = append(got, strings.TrimPrefix(to, "pods/"))
			}
		}
		if w.Code != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s: %d, %q; want %q", query, w.Code, got, want)
		}
	}
}

func longText(n int) string { return strings.Repeat("x", n) }

// When the agent does not answer, the page has what it last said, and says so; it never says that there
// are no pods.
func TestAgentThatIsDown(t *testing.T) {
	a := &agent{pods: []v1.Pod{pod("web", v1.PodRunning, v1.ConditionTrue)}}
	p := newPage(t, a)
	a.err = errors.New("no agent answers at /run/agent.sock")
	for i, want := range []string{"no agent answers at /run/agent.sock", "what it said at"} {
		for _, path := range []string{"/", "/?part"} {
			w := get(p, path)
			body := w.Body.String()
			for _, s := range []string{"The agent does not answer.", want, "Pods keep running without the agent", `class="stale"`, "no answer"} {
				if !strings.Contains(body, s) {
					t.Errorf("no %q in\n%s", s, body)
				}
			}
			if strings.Contains(body, "There are no pods") || strings.Contains(body, "pods/default/web") != (i == 1) {
				t.Errorf("after %d answers:\n%s", i, body)
			}
		}
		a.err = nil
		if body := get(p, "/").Body.String(); strings.Contains(body, "does not answer.") || strings.Contains(body, "stale") {
			t.Errorf("an agent that answers:\n%s", body)
		}
		a.err = errors.New("down")
	}
	w := get(p, "/pods/default/web")
	if body := w.Body.String(); w.Code != http.StatusBadGateway || !strings.Contains(body, "No answer") || !strings.Contains(body, `href="../../"`) || !strings.Contains(body, "Pods keep running") {
		t.Errorf("a pod's page: %d\n%s", w.Code, body)
	}
	if w := get(p, "/pods/default/web?part"); w.Code != http.StatusBadGateway || strings.Contains(w.Body.String(), "<") {
		t.Errorf("a part of a pod's page: %d %s", w.Code, w.Body)
	}
}

// A pod's page has what it is made of, what it uses of what it may, and its life.
func TestPodPage(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	p := pod("crash", v1.PodRunning, v1.ConditionFalse)
	p.Spec.NodeName, p.Name = "Lab", "crash-lab"
	c := &p.Spec.Containers[0]
	c.Command, c.Env = []string{"/bin/server", "-v"}, []v1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: *mustQuantity("2Mi")}
	c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
	c.VolumeMounts, p.Spec.Volumes = []v1.VolumeMount{{Name: "d", MountPath: "/data"}}, []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}}}
	p.Spec.InitContainers = []v1.Container{{Name: "first"}}
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 3, StartedAt: metav1.NewTime(at.Add(-5 * time.Second)), FinishedAt: metav1.NewTime(at)}
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "first", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.NewTime(at)}}}}
	body := get(newPage(t, &agent{pods: []v1.Pod{p}}), "/pods/default/crash-lab").Body.String()
	d := parsed(t, body)
	d.check()
	all := strings.Join(strings.Fields(text(d.root)), " ")
	for _, want := range []string{
		"0 of 1 ready · 3 restarts", "The run before ended with exit code 3 at " + at.Local().Format(time.TimeOnly) + ", after 5s", "Exit code 3", "container first ended with exit code 0 (Completed)",
		"/bin/server -v", "PASSWORD", "/data from d (rw)", "Readiness probe", "exec check", "does not succeed", "event ", "agent exec -it crash-lab -n default -- sh", "first init",
		"Volume d", "limit",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(body, "hunter2") {
		t.Error("the page has the value of a variable")
	}
}

// A log is what was asked for, and no answer of it says that it is a page.
func TestPageLogs(t *testing.T) {
	asked := make(chan local.LogOptions, 1)
	p := newPage(t, &logging{&agent{}, asked})
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for query, want := range map[string]local.LogOptions{
		"":                          {Container: "c", Tail: 500},
		"?follow&timestamps&tail=7": {Container: "c", Tail: 7, Follow: true, Timestamps: true},
		"?previous&tail=100000":     {Container: "c", Tail: 100000, Previous: true},
		"?since=" + since.Format(time.RFC3339Nano): {Container: "c", Tail: 500, Since: since},
	} {
		w := get(p, "/logs/default/web/c"+query)
		if got := <-asked; got != want || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("Content-Disposition") != "" {
			t.Errorf("%s: %d, %+v; want %+v", query, w.Code, got, want)
		}
	}
	for path, want := range map[string]string{
		"/logs/default/web/c?download":                 `attachment; filename="web-c.log"`,
		"/logs/default/web/%22%0d%0aX-Y:%20z?download": `attachment; filename="log.txt"`,
	} {
		w := get(p, path)
		if <-asked; w.Header().Get("Content-Disposition") != want {
			t.Errorf("%s: %q", path, w.Header())
		}
	}
	for _, query := range []string{"?tail=x", "?tail=-1", "?since=yesterday"} {
		if w := get(p, "/logs/default/web/c"+query); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
}

// Files beside the page stay in the browser until they change.
func TestPageFiles(t *testing.T) {
	p := newPage(t, &agent{})
	body := get(p, "/").Body.String()
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"} {
		m := regexp.MustCompile(`"(` + regexp.QuoteMeta(name) + `\?v=\w{16})"`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no %s in\n%s", name, body)
		}
		w := get(p, "/"+m[1])
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Body.Len() > 16<<10 {
			t.Errorf("%s: %d, %d bytes, %v", name, w.Code, w.Body.Len(), w.Header())
		}
	}
	if len(fmt.Sprint(body)) > 16<<10 {
		t.Errorf("a page without pods has %d bytes", len(body))
	}
}
