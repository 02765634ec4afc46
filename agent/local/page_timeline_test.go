package local_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

func newPageWithPast(t *testing.T, a local.PageAgent, past local.Past) *local.Page {
	t.Helper()
	p, err := local.NewPage(local.PageConfig{Agent: a, Past: func(q local.PastQuery) (local.Past, error) {
		if q.Name == "none" || q.Namespace != "default" {
			return local.Past{}, fmt.Errorf("pod %s: %w", q.Name, local.ErrNotFound)
		}
		return past, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// crashes returns the past of a pod whose container ran for half a minute n times, and waited as long.
// The last run began an hour ago, and ended 30 s after that with exit code 137.
func crashes(n int) (p local.Past) {
	begin := time.Now().Truncate(time.Second).Add(-time.Hour - time.Duration(n-1)*time.Minute)
	code := int32(137)
	p.Moments = append(p.Moments, local.Moment{At: begin, UID: "1", Kind: "wanted", Text: "it was added to its source"})
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Minute)
		end := at.Add(30 * time.Second)
		after := local.Stretch{Container: "app", From: end, To: end.Add(30 * time.Second), State: local.Waiting, Text: "it was killed", ExitCode: &code, Problem: true}
		if i == n-1 {
			after.State, after.To = local.Ended, time.Time{}
		}
		p.Stretches = append(p.Stretches, local.Stretch{Container: "app", From: at, To: end, State: local.Running, Text: "ran for 30s"}, after)
		p.Moments = append(p.Moments, local.Moment{At: end, UID: "1", Container: "app", Kind: "probe", Text: "the liveness probe failed <script>alert(1)</script>", Problem: true})
	}
	p.Moments = append(p.Moments, local.Moment{At: begin.Add(10 * time.Second), Kind: "begin", Text: "the agent was started again"})
	p.Stretches = append(p.Stretches, local.Stretch{From: begin, To: begin.Add(10 * time.Second), State: local.AgentAway, Text: "no agent ran"})
	return p
}

// elements returns the elements of a name in the timeline.
func (d *document) elements(name string) (out []*html.Node) {
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name && within(n, "section") {
			out = append(out, n)
		}
	}
	return out
}

// A pod has bars of its containers with exit codes, marks of failed probes and the time without an
// agent, also if the pod is gone.
func TestTimeline(t *testing.T) {
	a := &agent{pods: []v1.Pod{pod("web", v1.PodRunning, v1.ConditionTrue)}}
	p := newPageWithPast(t, a, crashes(3))
	for _, name := range []string{"web", "gone"} {
		w := get(p, "/pods/default/"+name)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", name, w.Code)
		}
		body := w.Body.String()
		for _, want := range []string{
			`<rect class="running" x="0%"`, `<rect class="waiting bad"`, `<rect class="ended bad"`, `<rect class="away" x="0%"`, ">exit 137</text>", `<circle class="bad"`,
			"ended: it was killed (exit code 137)", "away: no agent ran", `aria-label="Zoom into `, "&lt;script&gt;alert(1)", `href="?from=`, "; 3 failed probes", ">node</th>",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if strings.Contains(body, "<script>alert") || strings.Contains(body, "style=") {
			t.Errorf("%s: a text became an element, or there is a style that the policy forbids", name)
		}
	}
	if body := get(p, "/pods/default/gone").Body.String(); !strings.Contains(body, `<p class="pill done">gone</p>`) || strings.Contains(body, "page.js") {
		t.Error("the page of a pod that is gone does not say so, or is renewed")
	}
	end := time.Now().Add(-time.Hour + 32*time.Second).UTC().Format(time.RFC3339)
	if body := get(p, "/pods/default/gone?to="+end).Body.String(); !strings.Contains(body, `<text class="left" x="9`) || strings.Count(body, ">exit 137</text>") != 3 {
		t.Errorf("an exit code near the end is not shown:\n%s", body)
	}
	down := get(newPageWithPast(t, &agent{pods: a.pods, err: errors.New("connection refused")}, crashes(3)), "/pods/default/web").Body.String()
	if !strings.Contains(down, "<b>The agent does not answer.</b> connection refused") || !strings.Contains(down, ">exit 137</text>") {
		t.Error("without an agent there is no past")
	}
	for path, want := range map[string]int{
		"/pods/default/none": http.StatusNotFound, "/pods/other/gone": http.StatusNotFound,
		"/pods/default/gone?part": http.StatusNotFound, // a page that was open when the pod went
	} {
		if w := get(p, path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if body := get(p, "/pods/default/web?part").Body.String(); strings.Contains(body, `id="timeline"`) {
		t.Error("the record is read for each renewal")
	}
	if body := get(newPage(t, a), "/pods/default/web").Body.String(); strings.Contains(body, "timeline") {
		t.Error("a page without a record has a line in time")
	}
}

// Links show another time: each part of the line, less and more of it. All of them lead to a page, and
// zooming in ends.
func TestTimelineZoom(t *testing.T) {
	p := newPageWithPast(t, &agent{}, crashes(60))
	path, last := "/pods/default/gone", time.Duration(1<<62)
	for depth := 0; ; depth++ {
		d := parsed(t, get(p, path).Body.String())
		var in, other []string
		for _, n := range d.elements("a") {
			to := attr(n, "href")
			if !strings.HasPrefix(to, "?") {
				continue
			}
			if strings.HasPrefix(attr(n, "aria-label"), "Zoom into ") {
				in = append(in, to)
			} else {
				other = append(other, text(n))
			}
		}
		if depth > 0 && !strings.Contains(strings.Join(other, " "), "Zoom out") {
			t.Errorf("%s: links %q", path, other)
		}
		if len(in) == 0 {
			if depth < 3 {
				t.Errorf("only %d steps", depth)
			}
			return
		}
		if len(in) != 6 || depth > 20 {
			t.Fatalf("%s: %d parts at depth %d", path, len(in), depth)
		}
		to, err := url.Parse(in[2])
		if err != nil {
			t.Fatal(err)
		}
		from, err1 := time.Parse(time.RFC3339, to.Query().Get("from"))
		end, err2 := time.Parse(time.RFC3339, to.Query().Get("to"))
		if err := errors.Join(err1, err2); err != nil || end.Sub(from) >= last || end.Sub(from) <= 0 {
			t.Fatalf("%s: from %v to %v, %v", path, from, end, err)
		}
		last, path = end.Sub(from), "/pods/default/gone?"+to.RawQuery
	}
}

// Whatever the address and the record say, the page is bounded and says what is wrong.
func TestTimelineIsBounded(t *testing.T) {
	p := newPageWithPast(t, &agent{}, crashes(20_000))
	for query, want := range map[string]string{
		"": "more are not shown", "?from=x": "want a time such as", "?to=" + strings.Repeat("9", 3000): "want a time such as",
		"?from=0001-01-01T00:00:00Z":                         "Life in time",
		"?from=9999-12-31T00:00:00Z":                         "Life in time",
		"?from=2030-01-01T00:00:00Z&to=2020-01-01T00:00:00Z": "Life in time",
	} {
		body := get(p, "/pods/default/gone"+query).Body.String()
		if !strings.Contains(body, want) || len(body) > 1<<20 {
			t.Errorf("%.40s: %d bytes, without %q", query, len(body), want)
		}
		for _, n := range parsed(t, body).elements("rect") {
			for _, key := range []string{"x", "width"} {
				v, err := strconv.ParseFloat(strings.TrimSuffix(attr(n, key), "%"), 64)
				if err != nil || v < 0 || v > 100.3 {
					t.Errorf("%.40s: %s=%s", query, key, attr(n, key))
				}
			}
		}
	}
}
