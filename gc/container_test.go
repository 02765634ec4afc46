package gc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
)

// fakeRuntime is a runtime in memory.
type fakeRuntime struct {
	mu         sync.Mutex
	sandboxes  []Sandbox
	containers []Container
	fail       map[string]error // by ID, or "List"
	hang       map[string]bool
	calls      []string
	nap        func()
	removing   func(types.UID)
}

func (r *fakeRuntime) rest() {
	if r.nap != nil {
		r.nap()
	}
}

func (r *fakeRuntime) List(_ context.Context, pod types.UID) (sandboxes []Sandbox, containers []Container, err error) {
	r.rest()
	r.mu.Lock()
	r.calls = append(r.calls, "list "+string(pod))
	err = r.fail["List"]
	for _, s := range r.sandboxes {
		if pod == "" || s.Pod == pod {
			sandboxes = append(sandboxes, s)
		}
	}
	r.mu.Unlock()
	r.rest()
	r.mu.Lock()
	for _, c := range r.containers {
		if pod == "" || c.Pod == pod {
			containers = append(containers, c)
		}
	}
	r.mu.Unlock()
	r.rest()
	return sandboxes, containers, err
}

func (r *fakeRuntime) act(ctx context.Context, what, id string) error {
	r.rest()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what+" "+id)
	if r.hang[id] {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return ctx.Err()
	}
	return r.fail[id]
}

func (r *fakeRuntime) StopContainer(ctx context.Context, id string) error {
	return r.act(ctx, "stop", id)
}

func (r *fakeRuntime) RemoveContainer(ctx context.Context, c Container) error {
	if r.removing != nil {
		r.removing(c.Pod)
	}
	if err := r.act(ctx, "remove", c.ID); err != nil {
		return err
	}
	r.mu.Lock()
	r.containers = slices.DeleteFunc(r.containers, func(x Container) bool { return x.ID == c.ID })
	r.mu.Unlock()
	r.rest()
	return nil
}

func (r *fakeRuntime) RemoveSandbox(ctx context.Context, id string) error {
	if err := r.act(ctx, "remove", id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(x Sandbox) bool { return x.ID == id })
	return nil
}

// acts are the calls that changed something.
func (r *fakeRuntime) acts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, c := range r.calls {
		if !strings.HasPrefix(c, "list") {
			out = append(out, c)
		}
	}
	return strings.Join(out, ", ")
}

type fakePods struct {
	unready bool
	state   func(types.UID) PodState
}

func (p fakePods) Ready() bool { return !p.unready }
func (p fakePods) State(uid types.UID) PodState {
	if p.state != nil {
		return p.state(uid)
	}
	return podState(uid)
}

type fakeEvents struct {
	mu   sync.Mutex
	list []string
}

func (e *fakeEvents) Event(eventType, reason, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, eventType+" "+reason)
}

func newContainerCollector(t *testing.T, cfg ContainerConfig) *ContainerCollector {
	t.Helper()
	if cfg.Pods == nil {
		cfg.Pods = fakePods{}
	}
	m, err := NewContainerCollector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCollect(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name    string
		in      string
		fail    string
		reclaim bool
		want    string
		left    int // sandboxes
		err     error
	}{
		{name: "containers, then their sandbox", in: "g/a/1", want: "remove g/a/1, remove sb-g"},
		{name: "a container that stays keeps its sandbox", in: "g/a/1 g/b/2", fail: "g/a/1", want: "remove g/a/1, remove g/b/2", left: 1, err: boom},
		{name: "one that may run is stopped", in: "g/a/1/lost", want: "stop g/a/1/lost, remove g/a/1/lost, remove sb-g"},
		{name: "one that cannot be stopped stays", in: "g/a/1/lost", fail: "g/a/1/lost", want: "stop g/a/1/lost", left: 1, err: boom},
		{name: "a sandbox that cannot be stopped stays", in: "g/a/1", fail: "sb-g", want: "remove g/a/1, remove sb-g", left: 1, err: boom},
		{name: "over", in: "o/a/1 o/a/2", want: "remove o/a/1", left: 1},
		{name: "over and reclaimed", in: "o/a/1 o/a/2", reclaim: true, want: "remove o/a/1, remove o/a/2, remove sb-o"},
		{name: "no list", in: "g/a/1", fail: "List", left: 1, err: boom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rt := &fakeRuntime{containers: instances(strings.Fields(tc.in)...), fail: map[string]error{tc.fail: boom}}
			rt.sandboxes = []Sandbox{{ID: "sb-" + tc.in[:1], Pod: types.UID(tc.in[:1])}}
			m := newContainerCollector(t, ContainerConfig{Runtime: rt})
			collect := m.Collect
			if tc.reclaim {
				collect = m.Reclaim
			}
			n, err := collect(t.Context())
			if rt.acts() != tc.want || len(rt.sandboxes) != tc.left || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%s, %d sandboxes left, %v; want %s, %d, %v", rt.acts(), len(rt.sandboxes), err, tc.want, tc.left, tc.err)
			}
			if err == nil && n != strings.Count(tc.want, "remove") {
				t.Errorf("%d removed", n)
			}
		})
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{fail: map[string]error{}}
		var events fakeEvents
		m := newContainerCollector(t, ContainerConfig{Runtime: rt, Events: &events})
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		set := func(fail error, in ...string) {
			rt.mu.Lock()
			defer rt.mu.Unlock()
			rt.containers, rt.calls, rt.fail["List"] = instances(in...), nil, fail
		}
		want := func(after time.Duration, acts string, lists int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got := rt.acts()
			rt.mu.Lock()
			defer rt.mu.Unlock()
			if got != acts || len(rt.calls)-strings.Count(got, "remove") != lists {
				t.Errorf("calls %q, want %d lists and %s", rt.calls, lists, acts)
			}
		}
		set(nil, "l/a/1", "l/a/2", "g/a/3")
		m.Died("l")
		m.Died("l")
		want(500*time.Millisecond, "", 0)
		m.Died("l")
		want(500*time.Millisecond, "remove l/a/1", 1) // that pod alone, once
		set(nil, "g/a/3")
		want(4*time.Minute, "", 0)
		want(time.Minute, "remove g/a/3", 1)
		set(errors.New("boom"))
		want(5*time.Minute, "", 1)
		want(5*time.Minute, "", 2)
		events.mu.Lock()
		if got := strings.Join(events.list, ","); got != "Warning ContainerGCFailed,Warning ContainerGCFailed" {
			t.Errorf("events %q", got)
		}
		events.mu.Unlock()
		stop()
	})
}

// One pod whose removal hangs holds up no other, and not for ever.
func TestHungRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{containers: instances("g1/a/1", "g2/a/1", "g3/a/1"), hang: map[string]bool{"g2/a/1": true}}
		m := newContainerCollector(t, ContainerConfig{Runtime: rt})
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			rt.mu.Lock()
			defer rt.mu.Unlock()
			if got := len(rt.containers); got != 1 {
				t.Errorf("%d containers left after a second, want the one that hangs", got)
			}
		}()
		n, err := m.Collect(t.Context())
		if n != 2 || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Minute {
			t.Errorf("%d removed, %v, after %v", n, err, time.Since(start))
		}
	})
}

// What was spared for a hold is looked at again when that is over.
func TestHeldPodIsComeBackTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{containers: instances("g/a/1")}
		m := newContainerCollector(t, ContainerConfig{Runtime: rt})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		release, err := m.Hold(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- m.Run(ctx) }()
		time.Sleep(time.Minute)
		if rt.acts() != "" {
			t.Errorf("%s although the pod is held", rt.acts())
		}
		release()
		time.Sleep(2 * time.Second)
		if rt.acts() != "remove g/a/1" {
			t.Errorf("%q after the hold", rt.acts())
		}
		cancel()
		<-done
	})
}

func TestHoldEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{containers: instances("g/a/1"), hang: map[string]bool{"g/a/1": true}}
		m := newContainerCollector(t, ContainerConfig{Runtime: rt})
		go func() { _, _ = m.Collect(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Hold(ctx, "g"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v", err)
		}
		release, err := m.Hold(t.Context(), "g") // when the removal has timed out
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

func TestLogs(t *testing.T) {
	logs, links := t.TempDir(), t.TempDir()
	dir := func(name string) string {
		p := filepath.Join(logs, name)
		if err := os.MkdirAll(filepath.Join(p, "app"), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	link := func(name, target string) {
		if err := os.Symlink(target, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	live, held, full := dir("ns_web_live"), dir("ns_web_gheld"), dir("ns_web_gfull")
	dir("ns_web_gone")
	dir("lost+found")
	dir("a_b_c_gone")
	if err := os.WriteFile(filepath.Join(logs, "ns_file_gone"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(live, "app", "0.log")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(live, "app", "1.log")
	link("web_ns_app-there.log", there)
	link("web_ns_app-rotating.log", missing)
	link("web_ns_app-exited.log", missing)
	link("web_ns_app-unknown.log", missing)
	link("noid.log", missing)
	link("web_ns_app-foreign.log", "/nowhere/0.log")
	link("web_ns_app-unknown.txt", missing)
	long := strings.Repeat("x", 251)
	link(long[:250]+"1.log", missing) // whose directory is there
	link(long[:250]+"2.log", filepath.Join(logs, "ns_web_gone", "no", "0.log"))

	rt := &fakeRuntime{hang: map[string]bool{"stuck": true}, containers: []Container{
		{ID: "rotating", Pod: "live", Name: "app", State: observed.Running}, {ID: "exited", Pod: "live", Name: "app", State: observed.Exited},
		{ID: "runs", Pod: "gfull", State: observed.Running},
	}}
	m := newContainerCollector(t, ContainerConfig{Runtime: rt, PodLogsDir: logs, ContainerLogsDir: links})
	release, err := m.Hold(t.Context(), "gheld")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	names := func(dir string) (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	n, err := m.Collect(t.Context())
	if err != nil || n != 5 {
		t.Errorf("%d removed, %v, want 5", n, err)
	}
	want := []string{"a_b_c_gone", "lost+found", "ns_file_gone", filepath.Base(full), filepath.Base(held), filepath.Base(live)}
	if got := names(logs); !slices.Equal(got, want) {
		t.Errorf("log directories %q, want %q", got, want)
	}
	want = []string{"web_ns_app-foreign.log", "web_ns_app-rotating.log", "web_ns_app-there.log", "web_ns_app-unknown.txt", long[:250] + "1.log"}
	if got := names(links); !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
}

// With a container goes the link to its log, and no other one, without a look at all links.
func TestLinksGoWithTheirContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, links := t.TempDir(), t.TempDir()
		gone := filepath.Join(logs, "ns_web_l", "a", "0.log")
		for _, name := range []string{"web_ns_a-l_a_1.log", "web_ns_a-l_a_2.log", "web_ns_a-other.log", "web_ns_a-l_a_1.txt"} {
			if err := os.Symlink(gone, filepath.Join(links, name)); err != nil {
				t.Fatal(err)
			}
		}
		dead := instances("l/a/1", "l/a/2")
		for i := range dead {
			dead[i].ID = strings.ReplaceAll(dead[i].ID, "/", "_")
		}
		rt := &fakeRuntime{}
		m := newContainerCollector(t, ContainerConfig{Runtime: rt, PodLogsDir: logs, ContainerLogsDir: links})
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		if err := os.Symlink(gone, filepath.Join(links, "web_ns_a-l_a_1.log")); err != nil { // the first pass took it
			t.Fatal(err)
		}
		if err := errors.Join(os.Symlink(gone, filepath.Join(links, "web_ns_a-l_a_2.log")), os.Symlink(gone, filepath.Join(links, "web_ns_a-other.log"))); err != nil {
			t.Fatal(err)
		}
		rt.mu.Lock()
		rt.containers = dead
		rt.mu.Unlock()
		m.Died("l")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		entries, err := os.ReadDir(links)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if want := []string{"web_ns_a-l_a_1.txt", "web_ns_a-l_a_2.log", "web_ns_a-other.log"}; !slices.Equal(left, want) {
			t.Errorf("links %q, want %q", left, want)
		}
		stop()
	})
}

// What goes wrong in one part of a pass is told, and keeps no other from its
// work.
func TestEachPartOfAPassIsMade(t *testing.T) {
	logs, links := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(logs, "ns_web_gone"), 0o755),
		os.Symlink(filepath.Join(logs, "ns_web_other", "0.log"), filepath.Join(links, "web_ns_app-x.log"))); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	rt := &fakeRuntime{containers: instances("g/a/1"), sandboxes: []Sandbox{{ID: "sb-empty", Pod: "gempty"}}, fail: map[string]error{"g/a/1": boom}}
	m := newContainerCollector(t, ContainerConfig{Runtime: rt, PodLogsDir: logs, ContainerLogsDir: links})
	if n, err := m.Collect(t.Context()); n != 3 || !errors.Is(err, boom) {
		t.Errorf("%d removed, %v; want a sandbox, a directory, a link, and the error", n, err)
	}
	for _, dir := range []string{logs, links} {
		if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
			t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
	// A directory that cannot be read is an error, and one that is not there is
	// none: nothing has been logged.
	file := filepath.Join(logs, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{file: true, filepath.Join(logs, "none"): false} {
		rt := &fakeRuntime{containers: instances("g/a/1")}
		n, err := newContainerCollector(t, ContainerConfig{Runtime: rt, PodLogsDir: dir, ContainerLogsDir: dir}).Collect(t.Context())
		if n != 1 || (err != nil) != want || want && strings.Count(err.Error(), file) != 2 {
			t.Errorf("%s: %d removed, %v", dir, n, err)
		}
	}
}

// Sweep asks the runtime only if it may have something to remove, and removes
// what Collect would, but nothing of the runtime's.
func TestSweep(t *testing.T) {
	logs := t.TempDir()
	rt := &fakeRuntime{containers: []Container{{ID: "x", Pod: "gfull", Name: "app", State: observed.Exited}}}
	m := newContainerCollector(t, ContainerConfig{Runtime: rt, PodLogsDir: logs})
	dir := filepath.Join(logs, "ns_web_live")
	for _, want := range []int{0, 1, 0} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if n, err := m.Sweep(t.Context()); n != want || err != nil {
			t.Errorf("%d removed, %v, want %d", n, err, want)
		}
		if got := len(rt.calls); got != want {
			t.Errorf("calls %q, want %d", rt.calls, want)
		}
		rt.calls = nil
		if dir = filepath.Join(logs, "ns_web_gone"); want == 1 {
			dir = filepath.Join(logs, "ns_web_live")
		}
	}
	rt.fail = map[string]error{"List": errors.New("no answer")}
	if err := os.MkdirAll(filepath.Join(logs, "ns_web_gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	if n, err := m.Sweep(t.Context()); n != 0 || err == nil {
		t.Errorf("%d removed, %v, want an error", n, err)
	}
}

// Who waits for a removal has heard of it when Hold returns.
func TestRemovedIsToldBeforeHoldReturns(t *testing.T) {
	for _, fail := range []map[string]error{nil, {"old": errors.New("lost the answer")}} {
		synctest.Test(t, func(t *testing.T) {
			var told atomic.Int64
			rt := &fakeRuntime{fail: fail, containers: []Container{{ID: "old", Pod: "gone", Name: "app", State: observed.Exited}}}
			m := newContainerCollector(t, ContainerConfig{Runtime: rt, Removed: func(types.UID) { told.Add(1) }})
			held := make(chan int64, 1)
			rt.removing = func(uid types.UID) {
				go func() {
					release, err := m.Hold(t.Context(), uid)
					if err != nil {
						t.Error(err)
						return
					}
					held <- told.Load()
					release()
				}()
				time.Sleep(time.Second)
			}
			_, _ = m.Collect(t.Context())
			if n := <-held; n != 1 {
				t.Errorf("told %d times when Hold returned, want 1", n)
			}
		})
	}
}

// Before the sources of pods have spoken no pod counts as gone.
func TestLogsBeforeTheSourcesAreReady(t *testing.T) {
	logs := t.TempDir()
	if err := os.Mkdir(filepath.Join(logs, "ns_web_gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := newContainerCollector(t, ContainerConfig{Runtime: &fakeRuntime{}, Pods: fakePods{unready: true}, PodLogsDir: logs, ContainerLogsDir: filepath.Join(logs, "none")})
	if n, err := m.Collect(t.Context()); n != 0 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
}

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := NewContainerCollector(ContainerConfig{Policy: &ContainerPolicy{MinAge: -1}, PodLogsDir: "logs"})
	for _, want := range []string{"Runtime", "Pods", "MinAge", `PodLogsDir "logs"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %s", err, want)
		}
	}
}

func Example() {
	rt := &fakeRuntime{
		sandboxes: []Sandbox{{ID: "sb-g", Pod: "g"}},
		// l lives and was restarted twice, g is gone.
		containers: instances("l/app/1", "l/app/2", "l/app/3/run", "g/app/1"),
	}
	m, err := NewContainerCollector(ContainerConfig{Runtime: rt, Pods: fakePods{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := m.Collect(context.Background())
	fmt.Println(n, "removed", err)
	for _, c := range rt.containers {
		fmt.Println(c.ID, "stays")
	}
	// Output:
	// 3 removed <nil>
	// l/app/2 stays
	// l/app/3/run stays
}
