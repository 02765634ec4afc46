package podruntime

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// lose removes all values of a disk.
func lose(d *checkpointtest.Disk) {
	for key := range d.Values() {
		_ = d.Delete(key)
	}
}

// looping is a pod of one container, run by agents that come and go.
type looping struct {
	t     *testing.T
	rt    *critest.Runtime
	w     *world
	notes *checkpointtest.Disk // it outlives managers
	cfg   Config
	m     *Manager
	begin time.Time
}

func newLooping(t *testing.T, b Backoff) *looping {
	t.Helper()
	l := &looping{t: t, rt: critest.New(), notes: &checkpointtest.Disk{}, begin: time.Now()}
	l.rt.AddImage("img")
	l.rt.AddImage("fixed")
	l.w = build(v1.RestartPolicyAlways, nil, "a")
	l.ends(1)
	l.cfg = Config{Runtime: l.rt, Images: present{}, PodLogsDir: t.TempDir(), Memory: l.notes, Backoff: b}
	l.again()
	return l
}

// ends makes the instances from now on end at once, with that exit code.
func (l *looping) ends(code int) { l.lives(0, code) }

func (l *looping) lives(d time.Duration, code int) {
	l.w.pod.Spec.Containers[0].Command = []string{"sleep", d.String(), "exit", fmt.Sprint(code)}
}

// again is another life of the agent.
func (l *looping) again() {
	l.t.Helper()
	var err error
	if l.m, err = New(l.cfg); err != nil {
		l.t.Fatal(err)
	}
}

func (l *looping) look() *observed.Pod {
	l.t.Helper()
	pod, err := cri.NewReader(l.rt).Inspect(l.t.Context(), l.w.pod.UID)
	if err != nil {
		l.t.Fatal(err)
	}
	return pod
}

// sync syncs once, and says when to come again; the zero time is by the next
// event.
func (l *looping) sync() time.Time {
	l.t.Helper()
	res := l.m.Sync(l.t.Context(), request(l.t, l.w, l.look()))
	var held interface{ RetryAt() time.Time }
	if errors.As(res.Err(), &held) {
		return held.RetryAt()
	}
	return time.Time{}
}

// next waits for the next start and returns how long that took, in seconds.
func (l *looping) next() float64 {
	l.t.Helper()
	begin := time.Now()
	for range 100 {
		n := len(l.rt.Calls("StartContainer"))
		at := l.sync()
		if len(l.rt.Calls("StartContainer")) > n {
			took := time.Since(begin).Seconds()
			time.Sleep(time.Nanosecond) // it ends
			synctest.Wait()
			return took
		}
		if !at.IsZero() {
			time.Sleep(time.Until(at))
		} else {
			time.Sleep(time.Second)
		}
	}
	l.t.Fatal("the container is not started any more")
	return 0
}

func (l *looping) wantNext(what string, want float64) {
	l.t.Helper()
	if got := l.next(); got < want-0.1 || got > want+0.1 {
		l.t.Errorf("%s: started after %v s, want %v s", what, got, want)
	}
}

// An agent that is restarted in the middle of a delay waits for the rest of
// it, and goes on as if it had never been away. The restart count alone would
// tell otherwise: the container recovered once.
func TestAgentRestartKeepsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, nil)
		l.next()
		for _, want := range []float64{0, 10, 20, 40} {
			l.wantNext("before", want)
		}
		l.lives(11*time.Minute, 1)
		l.wantNext("a last time", 80)
		time.Sleep(11 * time.Minute)
		l.ends(1)
		l.wantNext("recovered", 0)
		l.wantNext("again", 10)
		l.wantNext("again", 20)
		at := l.sync()
		if got := time.Until(at).Round(time.Second); got != 40*time.Second {
			t.Fatalf("held for %v, want 40s", got)
		}
		time.Sleep(25 * time.Second)
		l.again()
		l.wantNext("the rest of the delay", 15)
		l.again()
		l.wantNext("the next delay", 80)
	})
}

// Agents that come and go at any moment decide as one that stays.
func TestAgentRestartsChangeNothing(t *testing.T) {
	policy := ByExitCode{Codes: map[int32]Backoff{3: ConstantBackoff(30 * time.Second)}}
	for seed := range uint64(6) {
		run := func(restarts bool) (starts []float64) {
			synctest.Test(t, func(t *testing.T) {
				rnd, coin := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
				l := newLooping(t, policy)
				for range 25 {
					lives := time.Duration(0)
					if rnd.IntN(8) == 0 {
						lives = time.Duration(rnd.IntN(15)) * time.Minute
					}
					l.lives(lives, []int{0, 1, 3, 137}[rnd.IntN(4)])
					l.next()
					starts = append(starts, time.Since(l.begin).Round(time.Second).Seconds())
					time.Sleep(lives)
					if restarts && coin.IntN(2) == 0 {
						l.again()
					}
				}
			})
			return starts
		}
		if one, many := run(false), run(true); !slices.Equal(one, many) {
			t.Fatalf("seed %d: starts with one agent\n%v\nwith many\n%v", seed, one, many)
		}
	}
}

// A new definition is a new attempt, also when the agent was away at the edit.
func TestEditResetsARememberedLoop(t *testing.T) {
	for name, edit := range map[string]func(*v1.Container){
		"image": func(c *v1.Container) { c.Image = "fixed" },
		"resources": func(c *v1.Container) {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLooping(t, nil)
			l.next()
			for _, want := range []float64{0, 10, 20} {
				l.wantNext(name, want)
			}
			l.again()
			edit(&l.w.pod.Spec.Containers[0])
			l.wantNext(name+" edited", 0)
			l.again()
			l.wantNext("then", 10)
			l.wantNext("then", 20)
		})
	}
}

// Who mends a container does not wait for the one that was broken, whatever the
// policy and whether or not the agent was there.
func TestEditWaitsForNothing(t *testing.T) {
	for name, away := range map[string]func(*looping){
		"there": func(*looping) {}, "away": (*looping).again, "away without a memory": func(l *looping) { lose(l.notes); l.again() },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLooping(t, ConstantBackoff(time.Hour))
			l.next()
			l.wantNext(name, 3600)
			l.sync()
			l.w.pod.Spec.Containers[0].Image = "fixed"
			away(l)
			l.wantNext(name+", edited", 0)
			l.wantNext(name+", still broken", 3600)
		})
	}
}

// A pod that begins again under its UID does not wait for the crashes of its earlier life,
// whether or not the agent was there, and shows none of its errors.
func TestNextLifeWaitsForNothing(t *testing.T) {
	gone := func(l *looping) {
		if err := l.m.Kill(l.t.Context(), l.w.pod, l.look(), nil); err != nil {
			l.t.Fatal(err)
		}
		if err := l.m.Remove(l.t.Context(), l.look()); err != nil {
			l.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		begin func(*looping)
		want  []float64
	}{
		"nothing is left":          {gone, []float64{0, 0, 10}},
		"while the agent was away": {func(l *looping) { gone(l); l.again() }, []float64{0, 0, 10}},
		"its container is there":   {func(*looping) {}, []float64{0, 10, 20}}, // as after an edit
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLooping(t, nil)
			l.w.life = 1
			l.next()
			for _, want := range []float64{0, 10, 20, 40} {
				l.wantNext(name, want)
			}
			l.sync()
			if fails := l.m.StartErrors(podlife.Life{UID: "u", N: 1}); len(fails) != 1 {
				t.Errorf("%s: errors %v, want that of the crash loop", name, fails)
			}
			tc.begin(l)
			l.w.life++
			if fails := l.m.StartErrors(podlife.Life{UID: "u", N: 2}); len(fails) != 0 {
				t.Errorf("%s: the next life begins with errors %v", name, fails)
			}
			for i, want := range tc.want {
				l.wantNext(fmt.Sprintf("%s, start %d", name, i+1), want)
			}
		})
	}
}

// Nothing is written that need not be: one small value for each restart of
// what crashed, none for a look, and of a quick policy only some.
func TestFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, nil)
		l.next()
		l.sync()
		if l.notes.Count("write") != 1 {
			t.Errorf("%d writes after the first restart, want 1", l.notes.Count("write"))
		}
		for range 5 {
			l.sync() // it is held
		}
		if l.notes.Count("write") != 1 {
			t.Errorf("%d writes while it was held, want 1", l.notes.Count("write"))
		}
		l.next()
		if l.notes.Count("write") != 2 {
			t.Errorf("%d writes after the second restart, want 2", l.notes.Count("write"))
		}
		if n := len(l.notes.Values()["u"]); n > 200 {
			t.Errorf("%d bytes are kept of one loop: %s", n, l.notes.Values()["u"])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, ConstantBackoff(time.Second))
		for range 61 {
			l.next()
		}
		if l.notes.Count("write") > 7 {
			t.Errorf("%d writes in a minute of restarts each second, want at most 7", l.notes.Count("write"))
		}
	})
}

// What is damaged, or cannot be read, counts as nothing: the restart count
// reports the loop.
func TestLostMemory(t *testing.T) {
	for name, lose := range map[string]func(*checkpointtest.Disk){
		"garbage":         func(n *checkpointtest.Disk) { n.Put("u", "{") },
		"another version": func(n *checkpointtest.Disk) { n.Put("u", `{"version":9}`) },
		"gone":            lose,
		"unreadable":      func(n *checkpointtest.Disk) { n.Fault(checkpointtest.Fail(errors.New("input/output error"))) },
		"of another pod with that name": func(n *checkpointtest.Disk) {
			n.Put("u", strings.ReplaceAll(n.Value("u"), `"restarts":4`, `"restarts":400`))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLooping(t, nil)
			l.next()
			for range 4 {
				l.next()
			}
			lose(l.notes)
			l.again()
			l.wantNext(name, 80)
			l.wantNext(name, 160)
		})
	}
}

// A disk that takes nothing harms nothing, is complained of once, and is
// asked again.
func TestMemoryThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := newLooping(t, nil)
		l.cfg.Log = zap.New(core)
		l.again()
		l.notes.Fault(checkpointtest.Fail(errors.New("no space left on device")))
		l.next()
		for _, want := range []float64{0, 10, 20, 40} {
			l.wantNext("full disk", want)
		}
		if n := logs.FilterMessage("failed to write record of a pod's crash loops").Len(); n != 1 {
			t.Errorf("%d complaints, want 1", n)
		}
		l.notes.Fault(nil)
		time.Sleep(savePause)
		l.sync() // the next look, without a restart
		if l.notes.Count("write") != 1 || logs.FilterMessage("records of crash loops can be written again").Len() != 1 {
			t.Errorf("%d writes after the disk has space, want 1; log %v", l.notes.Count("write"), logs.All())
		}
	})
}

// What is remembered goes with the pod, and at the latest when somebody says
// which pods there are.
func TestMemoryOfPodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, nil)
		l.next()
		l.next()
		l.notes.Put("away", "{}")
		l.m.Retain(func(uid types.UID) bool { return uid == "u" })
		if got := slices.Collect(maps.Keys(l.notes.Values())); !slices.Equal(got, []string{"u"}) {
			t.Errorf("remembered: %v, want u", got)
		}
		l.again()
		l.sync()
		l.m.Forget("u")
		if len(l.notes.Values()) > 0 {
			t.Errorf("a pod that is gone is remembered: %s", l.notes.Values())
		}
		l.m.Forget("u")
		l.notes.Fault(checkpointtest.Fail(errors.New("input/output error")))
		l.m.Retain(func(types.UID) bool { return false }) // it is logged
	})
}

// A write that fails may leave something that the memory does not list: it is deleted when
// the pod goes, or when that can be.
func TestMemoryThatFailsAsAPodGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooping(t, nil)
		l.next()
		l.notes.Fault(checkpointtest.Fail(errors.New("input/output error")))
		l.next()
		uid := l.w.pod.UID
		l.m.Forget(uid)
		l.m.Retain(func(types.UID) bool { return false })
		l.notes.Fault(nil)
		l.m.Retain(func(got types.UID) bool { return got == uid })
		if n := l.notes.Count("delete"); n > 0 {
			t.Errorf("%d deletions of what is kept", n)
		}
		l.notes.Calls()
		for range 2 {
			l.m.Retain(func(types.UID) bool { return false })
		}
		deleted := slices.DeleteFunc(l.notes.Calls(), func(call string) bool { return !strings.HasPrefix(call, "delete ") })
		if !slices.Equal(deleted, []string{"delete " + string(uid)}) {
			t.Errorf("%q, want %s deleted once", deleted, uid)
		}
	})
}

// However the wall clock was set, a container waits no longer than its delay
// from the moment that its end was seen.
func TestClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-1000 * time.Hour, -time.Hour, -time.Second, 0, 5 * time.Second, time.Hour, 1000 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: t.TempDir(), Backoff: ConstantBackoff(20 * time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			pod := build(v1.RestartPolicyAlways, nil, "a").pod
			// The clock was set by jump since the container ended.
			ended := time.Now().Round(0).Add(-jump)
			o := &observed.Container{ID: "1", Name: "a", State: observed.Exited, StartedAt: ended.Add(-time.Minute), FinishedAt: ended}
			begin := time.Now()
			for range 100 {
				until, _ := m.heldUntil(pod, &pod.Spec.Containers[0], o, time.Now())
				if until.IsZero() {
					break
				}
				time.Sleep(min(time.Until(until), 7*time.Second))
			}
			want := max(0, min(20*time.Second, 20*time.Second-jump))
			if got := time.Since(begin); got != want {
				t.Errorf("clock set by %v: held for %v, want %v", jump, got, want)
			}
		})
	}
}

// The policy hears all that is known of a crash.
func TestPolicyHearsOfTheCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []Crash
		l := newLooping(t, listening{&heard})
		l.lives(4*time.Second, 7)
		l.next()
		time.Sleep(4 * time.Second)
		l.next()
		time.Sleep(4 * time.Second)
		l.next()
		got := heard[len(heard)-1]
		if got.Pod.UID != "u" || got.Container.Name != "a" || *got.ExitCode != 7 || got.Reason != "Error" ||
			got.Lived.Round(time.Second) != 4*time.Second || got.Restarts != 1 || got.Last != 3*time.Second {
			t.Errorf("heard %+v", got)
		}
	})
}

type listening struct{ heard *[]Crash }

func (l listening) Delay(c Crash) time.Duration {
	*l.heard = append(*l.heard, c)
	return 3 * time.Second
}
func (l listening) Recovered(Crash) bool { return false }

func FuzzDecodeLoops(f *testing.F) {
	raw, err := encodeLoops(0, map[string]crashLoop{"a": {CrashLoop: CrashLoop{Restarts: 3, Last: 20 * time.Second}, definition: "d"}, "b": {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	for _, s := range []string{
		"", "null", "{}", `{"version":1}`, `{"version":1,"containers":{"a":{}}}`, `{"version":1,"containers":{"a":{"restarts":-1,"delay":"1s"}}}`,
		`{"version":1,"containers":{"a":{"restarts":1,"delay":"-1s"}}}`, `{"version":1,"containers":{"a":{"restarts":1e99,"delay":"1s"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		loops, err := decodeLoops(b, 0)
		if err != nil {
			return
		}
		for name, l := range loops {
			if l.Restarts < 1 || l.Last < 0 {
				t.Fatalf("%q: %+v", name, l)
			}
		}
		raw, err := encodeLoops(7, loops)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeLoops(raw, 7)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if !maps.Equal(loops, again) {
			t.Fatalf("%v became %v", loops, again)
		}
	})
}
