package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
)

func TestStatusOfPlugins(t *testing.T) {
	for code, text := range map[int]string{50: "not available", 51: "limited"} {
		r := newRig(t, false)
		r.install("main", "meta")
		r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main"}`, `{"type":"meta"}`))
		r.acts("meta", map[string]act{"STATUS": {Code: code, Msg: text, Details: "no agent"}})
		_, err := r.p.Plan(t.Context(), pod("a"))
		wantCode(t, err, network.Unavailable, `network "net" is not ready: plugin meta: STATUS: `+text+"; no agent (code 5")
		if got := r.p.Status(); got == nil || got.Error() != err.Error() {
			t.Errorf("status %v; want %v", got, err)
		}
		r.acts("meta", nil)
		if r.p.ask(t.Context()) {
			t.Error("it is to be asked again")
		}
		if err := r.p.Status(); err != nil {
			t.Error(err)
		}
		// Below 1.1 there is no such verb.
		r.acts("meta", map[string]act{"STATUS": {Code: code}})
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`, `{"type":"meta"}`))
		r.inUse()
		r.heard()
		if r.mustUp(pod("a")); len(r.heard("STATUS")) > 0 {
			t.Error("STATUS of version 1.0.0")
		}
	}
}

func TestStatusBeforeTheFirstLook(t *testing.T) {
	r := newRig(t, false)
	wantCode(t, r.p.Status(), network.Unavailable, "were not read yet")
	wantUse(t, r, "")
	wantCode(t, r.p.Status(), network.Unavailable, "no valid network configuration in "+r.conf)
}

func TestStatusIsKnownAfterRecovery(t *testing.T) {
	for conf, ok := range map[string]bool{oneConf("net", "1.0.0", `{"type":"main"}`): true, oneConf("net", "1.1.0", `{"type":"main"}`): true, "{": false} {
		r := newRig(t, false)
		r.install("main")
		r.write("10.conflist", conf)
		if err := r.p.Recovered(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Status(); (err == nil) != ok {
			t.Errorf("%s: %v", conf, err)
		}
	}
}

// A new list of which nobody knows the status yet takes no readiness away.
func TestANewListCountsAsTheOneBefore(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main"}`))
	r.plan(pod("a"))
	r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main","more":1}`))
	r.inUse()
	if err := r.p.Status(); err != nil {
		t.Error(err)
	}
}

func TestStatusCostsNothing(t *testing.T) {
	r := newRig(t, false)
	for range 2 {
		if n := testing.AllocsPerRun(100, func() { _ = r.p.Status() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		r.install("main")
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		r.inUse()
		if err := os.Remove(filepath.Join(r.bin, "main")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFailedADDHasTheStatusAsked(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main"}`))
	saved := r.plan(pod("a"))
	changed := make(chan struct{}, 16)
	stop := testrun.Start(t, func(ctx context.Context) error { return r.p.Run(ctx, func() { changed <- struct{}{} }) })
	r.acts("main", map[string]act{"ADD": {Code: 11, Msg: "no"}, "STATUS": {Code: 50, Msg: "down"}})
	if _, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, nil); err == nil {
		t.Error("no error")
	}
	<-changed
	wantCode(t, r.p.Status(), network.Unavailable, "down (code 50)")
	stop()
}

// loopRig records when the loop does what.
type loopRig struct {
	events, failed chan struct{}
	mu             sync.Mutex
	did            []string
	times          []time.Duration
	begun          time.Time
	load           func() loaded
	ask            func() bool
}

func (l *loopRig) note(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, s)
	l.times = append(l.times, time.Since(l.begun))
}

func (l *loopRig) run(ctx context.Context) {
	l.begun = time.Now()
	loop{
		events: l.events, failed: l.failed,
		load: func(context.Context) loaded { l.note("load"); return l.load() },
		ask:  func(context.Context) bool { l.note("ask"); return l.ask() },
	}.run(ctx)
}

func newLoopRig() *loopRig {
	return &loopRig{
		events: make(chan struct{}), failed: make(chan struct{}),
		load: func() loaded { return loaded{} }, ask: func() bool { return false },
	}
}

func wantTimes(t *testing.T, l *loopRig, want ...time.Duration) {
	t.Helper()
	synctest.Wait()
	ok := len(l.times) == len(want)
	for i := range min(len(want), len(l.times)) {
		ok = ok && l.times[i] == want[i]
	}
	if !ok {
		t.Errorf("did %v at %v; want it at %v", l.did, l.times, want)
	}
}

func TestLoopIsIdleWhenAllIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		go l.run(t.Context())
		time.Sleep(24 * time.Hour)
		wantTimes(t, l, 0)
	})
}

func TestLoopWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		go l.run(t.Context())
		time.Sleep(time.Second)
		for range 3 {
			l.events <- struct{}{}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		wantTimes(t, l, 0, 1200*time.Millisecond)
	})
}

// Somebody touches the directory all the time.
func TestLoopDoesNotWaitForQuietForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		go l.run(t.Context())
		for range 250 {
			l.events <- struct{}{}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(l.times); n < 3 || n > 4 {
			t.Errorf("%d loads in 2.5 s: %v", n, l.times)
		}
	})
}

func TestLoopAsksAgainWhileNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		l.load = func() loaded { return loaded{ask: true} }
		n := 0
		l.ask = func() bool { n++; return n < 3 }
		go l.run(t.Context())
		time.Sleep(time.Hour)
		wantTimes(t, l, 0, 0, again, 2*again)
		l.failed <- struct{}{} // an ADD
		wantTimes(t, l, 0, 0, again, 2*again, time.Hour)
	})
}

func TestLoopReadsAgainWhatIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		n := 0
		l.load = func() loaded { n++; return loaded{again: n < 3} }
		go l.run(t.Context())
		time.Sleep(time.Hour)
		wantTimes(t, l, 0, again, 2*again)
	})
}

// A plugin that hangs in STATUS holds up no load, and the other way round.
func TestLoopWaitsForNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoopRig()
		l.load = func() loaded { return loaded{ask: true} }
		l.ask = func() bool { time.Sleep(10 * time.Second); return false }
		go l.run(t.Context())
		time.Sleep(time.Second)
		l.events <- struct{}{}
		time.Sleep(time.Hour)
		// The second load wants another answer than the one that is under way.
		wantTimes(t, l, 0, 0, 1100*time.Millisecond, 10*time.Second)
	})
}

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		leaveA, err := l.enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		leaveB, err := l.enter(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.enter(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second call in the lane: %v", err)
		}
		all := make(chan func())
		go func() {
			leave, err := l.enter(t.Context(), everything)
			if err != nil {
				t.Error(err)
			}
			all <- leave
		}()
		synctest.Wait()
		leaveB()
		leaveC, err := l.enter(t.Context(), "c") // nobody waits for who waits
		if err != nil {
			t.Fatal(err)
		}
		leaveC()
		leaveA()
		leaveAll := <-all
		go func() { time.Sleep(time.Minute); leaveAll() }()
		begun := time.Now()
		leave, err := l.enter(t.Context(), "a")
		if err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		leave()
	})
}
