package page_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/nodewright/nodewright/agent/local"
)

const token = "a-token-of-these-tests"

// serve serves a page about an agent, and returns its address.
func serve(t *testing.T, a local.PageAgent) string {
	t.Helper()
	p, err := local.NewPage(local.PageConfig{Agent: a, Past: past})
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l, token) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// browser starts Chromium once for all tests. Its error is exec.ErrNotFound if there is none.
var browser = sync.OnceValues(func() (context.Context, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		ctx, _ := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)...) //nolint:govet // it ends with the tests
		ctx, _ = chromedp.NewContext(ctx)                                                                                                                          //nolint:govet // so does this
		return ctx, chromedp.Do(ctx)
	}
	return nil, exec.ErrNotFound
})

func TestMain(m *testing.M) {
	code := m.Run()
	if ctx, err := browser(); err == nil {
		_ = chromedp.Cancel(ctx)
	}
	os.Exit(code)
}

// view is how the page is looked at.
type view struct {
	width, height int64
	dark          bool
}

func (v view) String() string {
	return fmt.Sprintf("%d-%s", v.width, map[bool]string{false: "light", true: "dark"}[v.dark])
}

// tab is a page that is open in the browser.
type tab struct {
	*testing.T
	ctx context.Context
}

// open opens a page of the agent, and fails the test if anything is written to the console, but what
// the server answers if a pod or the agent is not there.
func open(t *testing.T, v view, url string) *tab {
	t.Helper()
	root, err := browser()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs Chromium: apt-get install chromium")
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(root)
	t.Cleanup(end)
	b := &tab{t, ctx}
	if err := chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("%s: exception: %s", url, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if !strings.HasPrefix(e.Entry.Text, "Failed to load resource: the server responded with") {
				t.Errorf("%s: console: %s %s", url, e.Entry.Text, e.Entry.URL)
			}
		case *runtime.EventConsoleAPICalled:
			t.Errorf("%s: console: %s", url, e.Type)
		}
	}); err != nil {
		t.Fatal(err)
	}
	at, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	scheme := map[bool]string{false: "light", true: "dark"}[v.dark]
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(v.width, v.height, func(p *emulation.SetDeviceMetricsOverrideParams, _ *emulation.SetTouchEmulationEnabledParams) {
		p.Mobile = v.width < 500
	}))
	b.do(chromedp.Navigate("http://"+at+"/?token="+token), chromedp.Navigate("http://"+at+"/"+path), chromedp.WaitReady("#main"))
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// picture writes what the tab shows into $PICTURES, all of the page or what is seen at first.
func (b *tab) picture(all bool) {
	b.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	shot := chromedp.CaptureScreenshot()
	if all {
		shot = chromedp.FullScreenshot(100)
	}
	png, err := chromedp.Run(b.ctx, shot)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(b.Name(), "/", "-")+".png"), png, 0o600)
	}
	if err != nil {
		b.Error(err)
	}
}

// eval evaluates an expression in the tab, and waits for a promise.
func eval[T any](b *tab, js string) T {
	b.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", js, err)
	}
	return out
}

// probe looks at the whole page: what is wider than the window, and text that has too little contrast with what it stands on.
const probe = `(() => {
  const wrong = [], wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth) wrong.push("scrolls sideways: " + wide.scrollWidth + " in " + wide.clientWidth);
  const rgb = (s) => (s.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
      if (c[3] > 0) wrong.push("half transparent: " + e.outerHTML.slice(0, 80));
    }
    return [255, 255, 255];
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode()); ) {
    const e = n.parentElement, style = getComputedStyle(e);
    if (!n.data.trim() || !e.checkVisibility() || /rgba\(.*, 0\)/.test(style.color) || /SCRIPT|STYLE/.test(e.nodeName)) continue;
    const of = e instanceof SVGElement ? style.fill : style.color;
    const a = light(rgb(of)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) wrong.push(ratio.toFixed(2) + " of " + of + ": " + n.data.trim().slice(0, 40));
    const box = e.getBoundingClientRect();
    if (box.right > innerWidth + 1 && !e.closest(".lines, caption, .skip")) wrong.push("out of the window: " + e.outerHTML.slice(0, 80));
  }
  return [...new Set(wrong)].slice(0, 10);
})()`

// At every width, in light and dark and with any number of pods the page scrolls up and down alone, and can be read.
func TestViews(t *testing.T) {
	for _, tc := range []struct {
		name  string
		agent *agent
		paths []string
	}{
		{"none", newAgent(0, 0), []string{"/", "/pods/default/none", "/pods/default/gone"}},
		{"30", newAgent(30, 6), []string{"/", "/pods/shop/checkout-vm", "/pods/default/web-vm"}},
		{"300", newAgent(300, 60), []string{"/"}},
		{"hostile", newAgent(30, 6).hostile(), []string{"/", "/pods/shop/checkout-vm"}},
	} {
		url := serve(t, tc.agent)
		for _, v := range []view{{1280, 800, false}, {1280, 800, true}, {390, 844, false}, {390, 844, true}, {768, 1024, false}} {
			for _, path := range tc.paths {
				t.Run(tc.name+strings.ReplaceAll(path, "/", "_")+"-"+v.String(), func(t *testing.T) {
					b := open(t, v, url+path)
					eval[bool](b, `document.querySelectorAll("details").forEach((d) => d.open = true) ?? true`)
					for _, wrong := range eval[[]string](b, probe) {
						t.Error(wrong)
					}
					if title := eval[string](b, "document.title"); strings.Contains(title, "owned") {
						t.Errorf("what a pod says runs: the title is %q", title)
					}
					eval[bool](b, `document.querySelectorAll("details").forEach((d) => d.open = false) ?? true`)
					b.picture(tc.name != "300")
				})
			}
		}
	}
}

// Thirty pods, of which six are broken, are seen at once.
func TestThirtyPodsOnAScreen(t *testing.T) {
	b := open(t, view{1280, 800, false}, serve(t, newAgent(30, 6))+"/")
	b.picture(false)
	if end := eval[float64](b, `document.querySelector(".pods tbody:last-child").getBoundingClientRect().bottom`); end > 800 {
		t.Errorf("the last pod ends at %v; want at most 800", end)
	}
}

// Every control and every link can be reached by the Tab key, in the order of the page, and shows that it has the focus.
func TestKeyboard(t *testing.T) {
	for _, path := range []string{"/", "/pods/shop/checkout-vm", "/pods/default/gone"} {
		b := open(t, view{1280, 800, false}, serve(t, newAgent(12, 2))+path)
		want := eval[int](b, `(() => {
			window.seen = new Set(); window.bare = [];
			window.all = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.disabled && !e.closest("form[role=search] button"));
			return all.length;
		})()`)
		for range want + 2 {
			b.do(chromedp.KeyEvent("\t"))
			eval[bool](b, `(() => {
				const e = document.activeElement, style = getComputedStyle(e);
				seen.add(e);
				if (e !== document.body && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2)) bare.push(e.outerHTML.slice(0, 100));
				return true;
			})()`)
		}
		for _, wrong := range eval[[]string](b, `[...all.filter((e) => !seen.has(e)).map((e) => "not reached: " + e.outerHTML.slice(0, 100)), ...bare.map((s) => "no outline: " + s)]`) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// The line in time is zoomed by the keyboard alone, and the way back is a link.
func TestTimelineIsZoomed(t *testing.T) {
	b := open(t, view{1280, 800, false}, serve(t, newAgent(12, 2))+"/pods/default/gone")
	shown := eval[string](b, `document.querySelector("#timeline p").textContent`)
	eval[bool](b, `document.querySelectorAll(".axis a")[2].focus() ?? true`)
	b.do(chromedp.KeyEvent("\r"))
	b.wait(`location.search.includes("from=") && document.readyState === "complete"`)
	if now := eval[string](b, `document.querySelector("#timeline p").textContent`); now == shown {
		t.Errorf("the time that is shown is still %q", now)
	}
	b.picture(true)
	eval[bool](b, `[...document.querySelectorAll(".zoom a")].find((a) => a.textContent === "All of it").click() ?? true`)
	b.wait(`!location.search.includes("from=") && document.readyState === "complete"`)
}

// wait waits until an expression is true. It fails the test after two minutes.
func (b *tab) wait(js string) {
	b.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => {
		for (const end = Date.now() + 120000; !(`+js+`); await new Promise((r) => setTimeout(r, 50))) if (Date.now() > end) return location + "\n" + document.body.innerText;
		return "";
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", js, err)
	}
	if out != "" {
		b.Fatalf("%s: not within two minutes:\n%s", js, out)
	}
}

const shown = `[...document.querySelectorAll(".pods a")].map((a) => a.textContent)`

// What one types filters the pods and is in the address. The focus stays while the page is renewed.
func TestSearch(t *testing.T) {
	b := open(t, view{1280, 800, false}, serve(t, newAgent(30, 6))+"/")
	if !eval[bool](b, `!document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }))`) {
		t.Error("the key / does nothing, or is typed too")
	}
	b.do(chromedp.KeyEvent("exit code"))
	b.wait(shown + `.join() === "checkout-vm"`)
	if at := eval[string](b, `location.search + " " + document.activeElement.name + " " + document.querySelector("output").textContent`); at != "?q=exit+code q 1 of 30" {
		t.Error(at)
	}
	b.do(chromedp.Reload(), chromedp.WaitReady(".pods"))
	b.wait(shown + `.join() === "checkout-vm" && document.querySelector("[name=q]").value === "exit code"`)
	eval[bool](b, `(() => { const f = document.querySelector("form"); f.q.value = ""; f.state.value = "bad"; f.state.dispatchEvent(new Event("input", { bubbles: true })); return true; })()`)
	b.wait(shown + `.length === 6 && location.search === "?state=bad"`)
}

// A page that is open notices that the agent is down, keeps what it had, and goes on when the agent is back; so does one that is opened
// meanwhile.
func TestAgentDown(t *testing.T) {
	a := newAgent(30, 6)
	url := serve(t, a)
	first, pod := open(t, view{1280, 800, false}, url+"/"), open(t, view{1280, 800, false}, url+"/pods/default/web-vm")
	first.do(chromedp.Focus(".pods tbody:nth-of-type(3) a"))
	a.set(true)
	first.wait(`document.querySelector(".stale .banner")`)
	first.picture(false)
	pod.wait(`document.querySelector("#down").textContent.startsWith("The agent does not answer since ")`)
	later := open(t, view{390, 844, true}, url+"/")
	for _, b := range []*tab{first, later} {
		if n, title := eval[int](b, shown+".length"), eval[string](b, "document.title"); n != 30 || title != "vm: no answer" {
			t.Errorf("%d pods, title %q", n, title)
		}
		for _, wrong := range eval[[]string](b, probe) {
			t.Error(wrong)
		}
	}
	a.set(false)
	first.wait(`!document.querySelector(".stale, .banner")`)
	pod.wait(`!document.querySelector(".stale") && !document.querySelector("#down").textContent`)
	if on := eval[string](first, "document.activeElement.textContent"); on != "checkout-vm" {
		t.Errorf("the focus is on %q", on)
	}
}

// The log follows, is searched, has times, is paused, and has the lines of several containers.
func TestLog(t *testing.T) {
	b := open(t, view{1280, 800, false}, serve(t, newAgent(12, 2))+"/pods/shop/checkout-vm")
	const lines = `[...document.querySelectorAll(".lines div")]`
	click := func(what string) { eval[bool](b, "document.querySelector(`form.tools "+what+"`).click() ?? true") }
	b.wait(lines + `.length > 105`)
	if s := eval[string](b, lines+`[0].innerText`); s != "c: request 0 from 10.214.4.1 answered with 200 <b>in</b> 0 ms" {
		t.Errorf("the first line is %q", s)
	}
	click("[name=times]")
	if s := eval[string](b, lines+`[0].innerText`); len(s) < 80 || s[:3] != "202" {
		t.Errorf("the first line with its time is %q", s)
	}
	click("[name=c][value='1']")
	b.wait(lines + `.some((l) => l.innerText.includes("side: request 99"))`)
	if at := eval[int](b, lines+`.findIndex((l, i, all) => i && l.when < all[i - 1].when)`); at >= 0 {
		t.Errorf("line %d is older than the one before", at)
	}
	click("[name=pause]")
	n := eval[int](b, lines+`.length`)
	b.wait(`/, \d+ wait/.test(document.querySelector(".tools output").textContent)`)
	if now := eval[int](b, lines+`.length`); now != n {
		t.Errorf("%d lines while paused, and then %d", n, now)
	}
	click("[name=pause]")
	b.wait(lines + `.length > ` + fmt.Sprint(n))
	b.do(chromedp.Focus("[name=find]"), chromedp.KeyEvent("REQUEST 42"))
	b.wait(lines + `.filter((l) => l.checkVisibility()).length === 2 && document.querySelectorAll(".lines mark").length === 2`)
	b.picture(true)
	if to := eval[string](b, `document.querySelector("a[download]").href`); !strings.HasSuffix(to, "/logs/shop/checkout-vm/c?download&tail=100000&timestamps") {
		t.Errorf("the file is at %s", to)
	}
	click("[name=previous]")
	click("[name=c][value='0']")
	b.wait(lines + `.length === 100 && ` + lines + `[0].innerText.includes("side: ")`)
}

// Without its script the page is whole: it has logs, and a form that filters.
func TestWithoutScript(t *testing.T) {
	b := open(t, view{1280, 800, false}, serve(t, newAgent(12, 2))+"/")
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Reload(), chromedp.SetValue("[name=q]", "exit code"), chromedp.Click("form button"), chromedp.WaitVisible("output"))
	b.do(chromedp.Click(".pods a"), chromedp.WaitVisible("#log pre"))
	if text, err := chromedp.Run(b.ctx, chromedp.Text("#log")); err != nil || !strings.Contains(text, "c: request 99") || strings.Contains(text, "Pause") {
		t.Errorf("%v: %s", err, text)
	}
}
