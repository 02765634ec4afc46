package podruntime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// The waits after failures in a row grow, what was seen has its first failure
// free, and what lasted begins anew.
func TestWaitsAfterBrokenRuns(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		seen bool
		must bool
		last time.Duration // how long each lasts before it fails
		want []time.Duration
	}{
		{"never seen", false, false, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"seen", true, false, time.Second, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second}},
		{"seen, and runs unlisted", true, true, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"lasted a minute", true, false, time.Minute, []time.Duration{0, 0, 0}},
		{"lasted a minute, never seen", false, false, time.Minute, []time.Duration{time.Second, time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPodRuns()
				for i, want := range tc.want {
					p.started("c", "id", time.Now())
					time.Sleep(tc.last)
					obs := &observed.Pod{UID: "u", ObservedAt: time.Now()}
					if tc.seen {
						obs.Containers = []observed.Container{{ID: "id", Name: "c", State: observed.Running}}
					}
					p.learn(obs, time.Now())
					if broken := p.learn(&observed.Pod{UID: "u", ObservedAt: time.Now()}, time.Now()); len(broken) != 1 || broken[0] != "id" {
						t.Fatalf("contradicted are %q", broken)
					}
					wait := time.Duration(0)
					r := p.of("c")
					if err := r.countFailure(tc.must, boom, time.Now()); err != nil {
						r.Err = boom
						held := (*heldError)(nil)
						if !errors.As(err, &held) || !errors.Is(err, boom) || !errors.Is(err, errUndone) {
							t.Fatalf("error %v", err)
						}
						wait = time.Until(held.until)
						if p.held("c", time.Now()) == nil || p.held("c", held.until) != nil {
							t.Error("it is not held as long as it says")
						}
					}
					if wait != want {
						t.Errorf("failure %d: a wait of %v, want %v", i+1, wait, want)
					}
					time.Sleep(wait)
				}
			})
		})
	}
}

// Why an instance was ended is known until the one after the next was made. What ended by itself
// was ended by nobody.
func TestEndedFor(t *testing.T) {
	p, now := newPodRuns(), time.Unix(1, 0)
	check := func(when string, want map[string]podlife.Kind) {
		t.Helper()
		for _, id := range []string{"", "1", "2", "3"} {
			if got := p.endedFor(id); got != want[id] {
				t.Errorf("%s: %q was ended for %q, want %q", when, id, got, want[id])
			}
		}
	}
	p.started("c", "1", now)
	check("while it runs", nil)
	p.end("c", "1", podlife.LivenessFailed, now)
	p.stopped("c", "1", now)
	check("when it has ended", map[string]podlife.Kind{"1": podlife.LivenessFailed})
	p.learn(&observed.Pod{ObservedAt: now.Add(time.Second)}, now)
	check("when it was removed", map[string]podlife.Kind{"1": podlife.LivenessFailed})
	p.started("c", "2", now.Add(time.Second))
	check("after its restart", map[string]podlife.Kind{"1": podlife.LivenessFailed})
	p.learn(&observed.Pod{Containers: []observed.Container{{ID: "2", Name: "c", State: observed.Exited}}}, now)
	p.started("c", "3", now.Add(2*time.Second))
	check("when its successor has ended by itself", nil)
	p.unheard(p.end("c", "3", podlife.Changed, now))
	check("when the runtime did not hear of the end", nil)
}

// A removal is believed once; what is there again is an error, and no more is
// remembered than there is room for.
func TestRemovalsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRuns()
		look := func() *observed.Pod {
			return &observed.Pod{UID: "u", ObservedAt: time.Now(), Sandboxes: []observed.Sandbox{{ID: "s"}}, Containers: []observed.Container{{ID: "c"}}}
		}
		if err := p.goes(look(), time.Now()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := p.goes(look(), time.Now()); err == nil {
			t.Error("what was removed is there, and nobody says so")
		}
		time.Sleep(removedFor + time.Second)
		if err := p.goes(&observed.Pod{UID: "v", ObservedAt: time.Now()}, time.Now()); err != nil || len(p.removed.at) != 0 {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
		many := &observed.Pod{UID: "w", ObservedAt: time.Now(), Containers: make([]observed.Container, 2*removedMost)}
		for i := range many.Containers {
			many.Containers[i].ID = string(rune('a'+i%26)) + time.Duration(i).String()
		}
		if err := p.goes(many, time.Now()); err != nil || len(p.removed.at) > removedMost {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
	})
}

// deaf is a runtime that says to do what it does not.
type deaf struct {
	*memory
	stops  bool // to stop a container
	starts bool // to start one: it stays created
	loses  bool // to start one: it is not there afterwards
}

func (d *deaf) StopContainer(ctx context.Context, id string, grace int64) error {
	if !d.stops {
		return d.memory.StopContainer(ctx, id, grace)
	}
	return d.do(ctx, "StopContainer", func() error { return nil })
}

func (d *deaf) StartContainer(ctx context.Context, id string) error {
	switch {
	case d.loses:
		_ = d.RemoveContainer(ctx, id)
	case !d.starts:
		return d.memory.StartContainer(ctx, id)
	}
	return d.do(ctx, "StartContainer", func() error { return nil })
}

// However a runtime contradicts itself, and however often its pod is looked at, it is asked for
// the same a few times a minute at first, and then once a minute for each of two instances.
func TestRuntimeThatContradictsItself(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    deaf
		wait time.Duration // after each end
		call string
	}{
		{"it stops nothing", deaf{stops: true}, 0, "StopContainer"},
		{"it stops nothing of what waits", deaf{stops: true}, time.Hour, "StopContainer"},
		{"it starts nothing", deaf{starts: true}, 0, "StartContainer"},
		{"it loses what it started", deaf{loses: true}, 0, "StartContainer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
				d := tc.d
				d.memory = r
				m, err := New(Config{Runtime: &d, Images: present{}, PodLogsDir: t.TempDir(), Backoff: ConstantBackoff(tc.wait)})
				if err != nil {
					t.Fatal(err)
				}
				req := request(t, w, nil)
				for i := range 1200 { // a look each second
					req.Observed = r.look()
					req.Observed.UID, req.Observed.ObservedAt = w.pod.UID, time.Now()
					if d.stops && i == 1 { // it has to end
						req.Liveness = func(string) ProbeResult { return ProbeFailure }
					}
					m.Sync(t.Context(), req)
					time.Sleep(time.Second)
				}
				if n := r.calls[tc.call]; n < 10 || n > 60 {
					t.Errorf("%d calls of %s in 20 minutes, want 10 to 60", n, tc.call)
				}
			})
		})
	}
}

var update = flag.Bool("update", false, "write the tables in testdata")

// begun is the time of the first event of each history below.
var begun = time.Unix(1000, 0)

// lookOf is a look at a pod of container c that began after now, and shows the instance id.
func lookOf(id string, state observed.State, now time.Time) *observed.Pod {
	look := &observed.Pod{UID: "u", ObservedAt: now}
	if id != "" {
		c := observed.Container{ID: id, Name: "c", State: state}
		if state == observed.Exited {
			c.FinishedAt = now.Add(-time.Second)
		}
		look.Containers = []observed.Container{c}
	}
	return look
}

// runEvent is something that happens to the run of container c. note is what comes of it beside.
type runEvent struct {
	name string
	do   func(p *podRuns, now time.Time) (note string)
}

func does(name string, do func(p *podRuns, now time.Time)) runEvent {
	return runEvent{name, func(p *podRuns, now time.Time) string { do(p, now); return "" }}
}

// looks is a look that began at the given distance from now.
func looks(name string, missing bool, state observed.State, ago time.Duration) runEvent {
	return runEvent{name, func(p *podRuns, now time.Time) string {
		id := p.of("c").ID
		if id == "" {
			id = "x"
		}
		if missing {
			id = ""
		}
		if broken := p.learn(lookOf(id, state, now.Add(-ago)), now); len(broken) > 0 {
			return "contradicted"
		}
		return ""
	}}
}

// runEvents are all events, in the order of the table. Each comes a second after the one before.
var runEvents = []runEvent{
	does("call fails", func(p *podRuns, now time.Time) { _ = p.fail("c", errors.New("boom"), now) }),
	does("made", func(p *podRuns, now time.Time) { p.made("c", fmt.Sprint("x", now.Unix()), created, now) }),
	does("started", func(p *podRuns, now time.Time) { p.started("c", p.of("c").ID+"x", now) }),
	{"end asked", func(p *podRuns, now time.Time) string {
		if id := p.of("c").ID; id != "" {
			p.end("c", id, "", now)
		}
		return ""
	}},
	does("not heard", func(p *podRuns, now time.Time) {
		if id := p.of("c").ID; id != "" {
			p.unheard(p.end("c", id, "Other", now))
		}
	}),
	does("stopped", func(p *podRuns, now time.Time) {
		if id := p.of("c").ID; id != "" {
			p.stopped("c", id, now)
		}
	}),
	does("removed", func(p *podRuns, _ time.Time) { p.discarded(p.of("c").ID) }),
	does("retry", func(p *podRuns, _ time.Time) { p.retry() }),
	looks("seen running", false, observed.Running, 0),
	looks("seen exited", false, observed.Exited, 0),
	looks("seen created", false, observed.Created, 0),
	looks("seen unknown", false, observed.Unknown, 0),
	looks("not seen", true, 0, 0),
	looks("old: running", false, observed.Running, time.Hour),
	looks("old: exited", false, observed.Exited, time.Hour),
	looks("old: missing", true, 0, time.Hour),
}

// kindOfRun names what the table distinguishes: whatever else differs changes no step.
func kindOfRun(r *run) string {
	out := r.State.String()
	switch {
	case r.State == planned:
	case r.Since.IsZero():
		out += ", only seen"
	case r.Seen:
		out += ", told and seen"
	default:
		out += ", told"
	}
	switch {
	case r.failed > 0:
		out += ", after a failed call"
	case !r.Next.IsZero():
		out += ", after a contradiction"
	}
	return out
}

// reachRuns returns histories of events that lead to each kind of run.
func reachRuns() (kinds []string, histories map[string][]int) {
	histories = map[string][]int{}
	for queue := [][]int{nil}; len(queue) > 0; queue = queue[1:] {
		p, _, _ := replay(queue[0])
		kind := kindOfRun(p.of("c"))
		if _, old := histories[kind]; old {
			continue
		}
		kinds = append(kinds, kind)
		histories[kind] = queue[0]
		for e := range runEvents {
			queue = append(queue, append(slices.Clone(queue[0]), e))
		}
	}
	return kinds, histories
}

func replay(history []int) (p *podRuns, now time.Time, note string) {
	p, now = newPodRuns(), begun
	for _, e := range history {
		now = now.Add(time.Second)
		note = runEvents[e].do(p, now)
		if note != "" { // as who carries a plan out does
			r := p.of("c")
			_ = r.countFailure(false, errors.New("contradicted"), now)
		}
	}
	return p, now, note
}

// testdata/runs.txt has all that a run can be, and for each event what it becomes (- is the
// same), and whether a look contradicts it.
func TestRunTable(t *testing.T) {
	kinds, histories := reachRuns()
	order := func(kind string) int {
		return slices.IndexFunc([]string{"planned", "created", "started", "ending", "ended"}, func(s string) bool { return strings.HasPrefix(kind, s) })
	}
	slices.SortFunc(kinds, func(a, b string) int {
		if d := order(a) - order(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var out strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&out, "%s\n", kind)
		for e := range runEvents {
			p, _, note := replay(append(slices.Clone(histories[kind]), e))
			to := kindOfRun(p.of("c"))
			if to == kind {
				to = "-"
			}
			fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("    %-14s %-40s %s", runEvents[e].name, to, note), " "))
		}
		fmt.Fprintln(&out)
	}
	const path = "testdata/runs.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("%s differs; -update writes it:\n%s", path, out.String())
	}
}

// Whatever happens to a container, in whatever order: a look says the same when it is merged
// twice; one that is too old changes nothing but that what it shows to have ended has ended;
// only what the runtime said can be contradicted; what has ended waits for nothing but a failed
// call; waits after failed calls in a row grow to a minute; the time to end begins once; and what
// was to end is kept for as long as it may run.
func TestRunProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		p, now := newPodRuns(), begun
		var history []string
		for range 15 {
			now = now.Add(time.Duration(rnd.IntN(100)) * time.Second)
			e := runEvents[rnd.IntN(len(runEvents))]
			history = append(history, e.name)
			before := *p.of("c")
			contradicted := e.do(p, now) != ""
			r := p.of("c")
			wrong := func(format string, args ...any) {
				t.Fatalf("%s\nafter %s\nbefore %+v\nnow %+v", fmt.Sprintf(format, args...), strings.Join(history, "; "), before, *r)
			}
			if strings.HasPrefix(e.name, "seen") || strings.HasPrefix(e.name, "not seen") || strings.HasPrefix(e.name, "old") {
				once := *r
				if again := e.do(p, now) != ""; again != contradicted || kindOfRun(r) != kindOfRun(&once) || !r.Since.Equal(once.Since) {
					wrong("the same look says something else")
				}
			}
			old := strings.HasPrefix(e.name, "old")
			if old && !before.Since.IsZero() && now.Add(-time.Hour).Before(before.Since) && e.name != "old: exited" && kindOfRun(&before) != kindOfRun(r) {
				wrong("a look that is too old changed something")
			}
			if contradicted {
				if before.Since.IsZero() && len(p.older) == 0 {
					wrong("what only looks have shown is contradicted")
				}
				if r.State == started || r.State == ended {
					_ = r.countFailure(false, errors.New("contradicted"), now)
				}
			}
			if r.State == ended && r.Seen && r.failed == 0 && !r.Next.IsZero() && !contradicted {
				wrong("what has ended waits")
			}
			if wait := waits.Following(before.failed); e.name == "call fails" && r.Next.Sub(now) != wait {
				wrong("a wait of %v after a failed call, want %v", r.Next.Sub(now), wait)
			}
			if e.name == "end asked" && before.State == ending && before.Ends == r.Ends && !r.Since.Equal(before.Since) {
				wrong("the time to end begins anew")
			}
			if r.Next.Sub(now) > waits.Max {
				wrong("a wait of %v", r.Next.Sub(now))
			}
			for _, o := range p.older {
				if !o.ends() {
					wrong("an older run is kept that need not end: %+v", o)
				}
			}
		}
		// Nothing that has gone is remembered beside the newest.
		if p.learn(&observed.Pod{UID: "u", ObservedAt: now.Add(time.Second)}, now.Add(time.Second)); len(p.older) > 0 {
			t.Fatalf("after %s: %+v is kept, which is not there", strings.Join(history, "; "), p.older[0])
		}
	}
}
