package podworker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// fakeSyncer records its calls and does what its functions say; a nil
// function succeeds at once.
type fakeSyncer struct {
	sync       func(ctx context.Context, w podworker.Work) (podworker.Outcome, error)
	terminate  func(ctx context.Context, w podworker.Work) error
	terminated func(ctx context.Context, w podworker.Work) error
	runtimePod func(ctx context.Context, w podworker.Work) error

	mu    sync.Mutex
	calls []call
	busy  map[types.UID]int
	over  []types.UID // UIDs that had two calls at a time
}

type call struct {
	op   string
	uid  types.UID
	work podworker.Work
	at   time.Time
}

func (f *fakeSyncer) enter(op string, w podworker.Work) func() {
	uid := types.UID("")
	if w.Pod != nil {
		uid = w.Pod.UID
	} else {
		uid = w.RuntimePod.UID
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy == nil {
		f.busy = map[types.UID]int{}
	}
	f.calls = append(f.calls, call{op, uid, w, time.Now()})
	if f.busy[uid]++; f.busy[uid] > 1 {
		f.over = append(f.over, uid)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy[uid]--
	}
}

func (f *fakeSyncer) SyncPod(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
	defer f.enter("sync", w)()
	if f.sync != nil {
		return f.sync(ctx, w)
	}
	return podworker.Outcome{}, nil
}

func (f *fakeSyncer) SyncTerminatingPod(ctx context.Context, w podworker.Work) error {
	defer f.enter("terminating", w)()
	if f.terminate != nil {
		return f.terminate(ctx, w)
	}
	return nil
}

func (f *fakeSyncer) SyncTerminatingRuntimePod(ctx context.Context, w podworker.Work) error {
	defer f.enter("runtime", w)()
	if f.runtimePod != nil {
		return f.runtimePod(ctx, w)
	}
	return nil
}

func (f *fakeSyncer) SyncTerminatedPod(ctx context.Context, w podworker.Work) error {
	defer f.enter("terminated", w)()
	if f.terminated != nil {
		return f.terminated(ctx, w)
	}
	return nil
}

// ops lists the calls for a UID.
func (f *fakeSyncer) ops(uid types.UID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if c.uid == uid {
			out = append(out, c.op)
		}
	}
	return out
}

func (f *fakeSyncer) last(uid types.UID, op string) call {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range slices.Backward(f.calls) {
		if c.uid == uid && c.op == op {
			return c
		}
	}
	return call{}
}

func newPod(uid, name string) *v1.Pod {
	grace := int64(30)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "ns"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{Name: "c"}}},
	}
}

func newStatic(uid, name string) *v1.Pod {
	p := newPod(uid, name)
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	return p
}

// run runs test in a bubble beside a running Manager.
func run(t *testing.T, f *fakeSyncer, cfg podworker.Config, test func(m *podworker.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Syncer = f
		m, err := podworker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		test(m)
		stop()
		if len(f.over) > 0 {
			t.Errorf("calls overlapped for %v", f.over)
		}
	})
}

func create(p *v1.Pod) podworker.Update {
	return podworker.Update{Type: podworker.CreateUpdate, Pod: p}
}

func kill(p *v1.Pod, o *podworker.KillOptions) podworker.Update {
	return podworker.Update{Type: podworker.KillUpdate, Pod: p, Kill: o}
}

func wantOps(t *testing.T, f *fakeSyncer, uid types.UID, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := f.ops(uid); !slices.Equal(got, want) {
		t.Errorf("calls of %s = %v, want %v", uid, got, want)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestLife(t *testing.T) {
	f := &fakeSyncer{}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		p := newPod("u", "p")
		m.Update(create(p))
		wantOps(t, f, "u", "sync")
		done := make(chan struct{})
		m.Update(kill(p, &podworker.KillOptions{Done: done}))
		wantOps(t, f, "u", "sync", "terminating", "terminated")
		if !isClosed(done) {
			t.Error("Done is open after the end")
		}
		if g := f.last("u", "terminating").work.GracePeriodSeconds; g == nil || *g != 30 {
			t.Errorf("grace = %v, want 30 of the spec", g)
		}
		if !finished(m, "u") || !m.KnownTerminated("u") {
			t.Error("the pod does not count as finished")
		}
		late := make(chan struct{})
		m.Update(kill(p, &podworker.KillOptions{Done: late}))
		if !isClosed(late) {
			t.Error("Done of a kill after the end stays open")
		}
		m.SyncKnownPods(nil)
		if _, ok := m.State("u"); ok {
			t.Error("the record stays after SyncKnownPods")
		}
	})
}

func TestUpdatesCoalesce(t *testing.T) {
	release := make(chan struct{})
	f := &fakeSyncer{}
	f.sync = func(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
		if w.Type == podworker.CreateUpdate {
			<-release
		}
		return podworker.Outcome{}, nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		release = make(chan struct{}) // of this bubble
		m.Update(create(newPod("u", "p")))
		synctest.Wait()
		for i := range 10 {
			p := newPod("u", "p")
			p.Generation = int64(i)
			m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: p})
		}
		close(release)
		wantOps(t, f, "u", "sync", "sync")
		if g := f.last("u", "sync").work.Pod.Generation; g != 9 {
			t.Errorf("generation %d ran, want the last", g)
		}
	})
}

func TestKillInterruptsSyncAndIsNotOverwritten(t *testing.T) {
	f := &fakeSyncer{}
	f.sync = func(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
		<-ctx.Done()
		return podworker.Outcome{}, ctx.Err()
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		p := newPod("u", "p")
		m.Update(create(p))
		synctest.Wait()
		start := time.Now()
		m.Update(kill(p, &podworker.KillOptions{Why: podlife.Cause{Kind: podlife.Evicted}}))
		m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: p})
		wantOps(t, f, "u", "sync", "terminating", "terminated")
		if d := time.Since(start); d != 0 {
			t.Errorf("the kill took %v", d)
		}
		if !f.last("u", "terminating").work.Evicted {
			t.Error("the eviction was lost to a later update")
		}
	})
}

func TestShorterGraceInterruptsTermination(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(ctx context.Context, w podworker.Work) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(*w.GracePeriodSeconds) * time.Second):
			return nil
		}
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		p := newPod("u", "p")
		m.Update(create(p))
		m.Update(kill(p, nil))
		synctest.Wait()
		start := time.Now()
		two, ten := int64(2), int64(10)
		done := make(chan struct{})
		m.Update(kill(p, &podworker.KillOptions{Why: podlife.Cause{Grace: &two}, Done: done}))
		m.Update(kill(p, &podworker.KillOptions{Why: podlife.Cause{Grace: &ten}}))
		<-done
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("ended after %v, want 2s", d)
		}
	})
}

func TestRetryBacksOff(t *testing.T) {
	fail := errors.New("boom")
	f := &fakeSyncer{}
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) { return podworker.Outcome{}, fail }
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		synctest.Wait()
		st, _ := m.State("u")
		if st.Failures != 1 || st.LastError != "boom" || st.NextReason != "FailedSync" {
			t.Errorf("state %+v", st)
		}
		for i, base := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			time.Sleep(90 * time.Second)
			f.mu.Lock()
			next := f.calls[i+1].at
			prev := f.calls[i].at
			f.mu.Unlock()
			if d := next.Sub(prev); d < base*time.Second || d > base*time.Second*3/2 {
				t.Errorf("retry %d after %v, want %ds to 1.5 times that", i, d, base)
			}
		}
	})
}

type retryError struct {
	at     time.Time
	reason string
}

func (e retryError) Error() string      { return "later" }
func (e retryError) RetryAt() time.Time { return e.at }
func (e retryError) Reason() string     { return e.reason }

func TestRetryAtIsHonoured(t *testing.T) {
	f := &fakeSyncer{}
	first := true
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		if !first {
			return podworker.Outcome{}, nil
		}
		first = false
		now := time.Now()
		return podworker.Outcome{}, fmt.Errorf("sync: %w", errors.Join(
			retryError{now.Add(20 * time.Second), "ImagePullBackOff"}, retryError{now.Add(7 * time.Second), "CrashLoopBackOff"}))
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		start := time.Now()
		m.Update(create(newPod("u", "p")))
		synctest.Wait()
		if st, _ := m.State("u"); st.NextReason != "ImagePullBackOff" || !st.NextAt.Equal(start.Add(7*time.Second)) {
			t.Errorf("next at %v for %q", st.NextAt.Sub(start), st.NextReason)
		}
		time.Sleep(8 * time.Second)
		if d := f.last("u", "sync").at.Sub(start); d != 7*time.Second {
			t.Errorf("retried after %v, want 7s", d)
		}
	})
}

func TestPanicIsAnErrorAndRetried(t *testing.T) {
	f := &fakeSyncer{}
	n := 0
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		if n++; n == 1 {
			panic("ouch")
		}
		return podworker.Outcome{}, nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		synctest.Wait()
		if st, _ := m.State("u"); st.LastError != "panic: ouch" || st.NextReason != "Panic" {
			t.Errorf("state %+v", st)
		}
		time.Sleep(2 * time.Second)
		wantOps(t, f, "u", "sync", "sync")
		if st, _ := m.State("u"); st.LastError != "" {
			t.Errorf("the error stays: %q", st.LastError)
		}
	})
}

func TestStaticPodsOfOneNameFollowEachOther(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(context.Context, podworker.Work) error { time.Sleep(5 * time.Second); return nil }
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		a, b, c := newStatic("a", "p"), newStatic("b", "p"), newStatic("c", "p")
		m.Update(create(a))
		m.Update(create(b))
		m.Update(create(c))
		m.Update(create(newPod("api", "p")))
		wantOps(t, f, "api", "sync")
		wantOps(t, f, "b")
		done := make(chan struct{})
		m.Update(kill(b, &podworker.KillOptions{Done: done}))
		wantOps(t, f, "b")
		if !isClosed(done) {
			t.Error("Done of a pod that never ran stays open")
		}
		m.Update(kill(a, nil))
		if !m.TerminatingByFullName("p_ns") {
			t.Error("the name's holder does not count as terminating")
		}
		time.Sleep(4 * time.Second)
		wantOps(t, f, "c")
		time.Sleep(2 * time.Second)
		wantOps(t, f, "a", "sync", "terminating", "terminated")
		wantOps(t, f, "c", "sync")
		if at := f.last("c", "sync").at; !at.Equal(f.last("a", "terminated").at) {
			t.Error("the next pod of the name was not woken at once")
		}
	})
}

// A pod that waits for its name, and is ended with something to say, says it: it may begin again when
// the reason is over, and does so by its status.
func TestStatusOfAnEndBeforeTheBeginning(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(_ context.Context, w podworker.Work) error {
		if w.Pod.UID == "a" {
			time.Sleep(5 * time.Second)
		} else if len(w.Causes) != 1 {
			t.Errorf("%d causes, want 1", len(w.Causes))
		}
		return nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		a, b, c := newStatic("a", "p"), newStatic("b", "p"), newStatic("c", "p")
		m.Update(create(a))
		m.Update(create(b))
		m.Update(create(c))
		m.Update(kill(a, nil))
		done := make(chan struct{})
		m.Update(kill(b, &podworker.KillOptions{Done: done, Why: podlife.Cause{Kind: podlife.Shutdown}}))
		synctest.Wait()
		wantOps(t, f, "b", "terminating", "terminated")
		if !isClosed(done) {
			t.Error("Done stays open")
		}
		wantOps(t, f, "c")
		time.Sleep(6 * time.Second)
		wantOps(t, f, "c", "sync")
	})
}

// A create while a pod ends does not begin it again; one after its end does, in another life.
func TestCreateOfAPodThatEnds(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(context.Context, podworker.Work) error { time.Sleep(3 * time.Second); return nil }
	finished := make(chan types.UID, 10)
	run(t, f, podworker.Config{Finished: func(uid types.UID) { finished <- uid }}, func(m *podworker.Manager) {
		p := newStatic("u", "p")
		m.Update(create(p))
		synctest.Wait()
		m.Update(kill(p, nil))
		synctest.Wait()
		m.Update(create(p))
		time.Sleep(time.Minute)
		wantOps(t, f, "u", "sync", "terminating", "terminated")
		if len(finished) != 1 || <-finished != "u" {
			t.Fatal("nobody is told, once, that the pod has finished")
		}
		ended := f.last("u", "terminated")
		again := newStatic("u", "p")
		again.Generation = 2
		m.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: again, Life: 7})
		synctest.Wait()
		wantOps(t, f, "u", "sync", "terminating", "terminated", "sync")
		w := f.last("u", "sync").work
		if w.Pod.Generation != 2 || w.Life != (podlife.Life{UID: "u", N: 7}) || ended.work.Life != (podlife.Life{UID: "u"}) {
			t.Errorf("generation %d in life %v after one in life %v", w.Pod.Generation, w.Life, ended.work.Life)
		}
		if w.NewerThan.Before(ended.at) {
			t.Errorf("the next life takes what was seen %v before the end of the old one", ended.at.Sub(w.NewerThan))
		}
	})
}

func TestRuntimeOnlyPod(t *testing.T) {
	f := &fakeSyncer{}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		rp := &podworker.RuntimePod{UID: "r", Name: "p", Namespace: "ns"}
		m.Update(podworker.Update{Type: podworker.CreateUpdate, RuntimePod: rp})
		if _, ok := m.State("r"); ok {
			t.Error("a create of a runtime pod made a record")
		}
		done := make(chan struct{})
		m.Update(podworker.Update{Type: podworker.KillUpdate, RuntimePod: rp, Kill: &podworker.KillOptions{Done: done}})
		wantOps(t, f, "r", "runtime")
		if _, ok := m.State("r"); ok || !isClosed(done) {
			t.Error("the record stays, or Done is open")
		}
	})
}

func TestTerminalPhaseAtFirstSight(t *testing.T) {
	for _, idle := range []bool{true, false} {
		f := &fakeSyncer{}
		run(t, f, podworker.Config{Idle: func(types.UID) bool { return idle }}, func(m *podworker.Manager) {
			p := newPod("u", "p")
			p.Status.Phase = v1.PodSucceeded
			m.Update(create(p))
			if idle {
				wantOps(t, f, "u", "terminated")
			} else {
				wantOps(t, f, "u", "terminating", "terminated")
			}
		})
	}
}

func TestTerminalOutcome(t *testing.T) {
	f := &fakeSyncer{}
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		return podworker.Outcome{Terminal: true}, nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		wantOps(t, f, "u", "sync", "terminating", "terminated")
		if g := f.last("u", "terminating").work.GracePeriodSeconds; g != nil {
			t.Errorf("grace %d of a pod that ended by itself", *g)
		}
	})
}

// Whenever a pod that ended by itself hears that it is to be deleted, its syncer hears of it.
func TestDeletionOfAnEndedPodIsTold(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 3 * time.Second} { // the clean-up takes 2 s
		for _, unwantedFirst := range []bool{false, true} {
			f := &fakeSyncer{sync: func(context.Context, podworker.Work) (podworker.Outcome, error) {
				return podworker.Outcome{Terminal: true}, nil
			}}
			f.terminated = func(context.Context, podworker.Work) error { time.Sleep(2 * time.Second); return nil }
			run(t, f, podworker.Config{}, func(m *podworker.Manager) {
				p := newPod("u", "p")
				m.Update(create(p))
				time.Sleep(after)
				if unwantedFirst {
					m.SyncKnownPods(nil)
				}
				p = p.DeepCopy()
				p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				m.Update(kill(p, nil))
				time.Sleep(time.Minute)
				if last := f.last("u", "terminated").work.Pod; last == nil || last.DeletionTimestamp == nil {
					t.Errorf("after %v, unwanted first %v: the syncer was not told: %v", after, unwantedFirst, f.ops("u"))
				}
				n := len(f.ops("u"))
				m.Update(kill(p, nil))
				time.Sleep(time.Minute)
				if len(f.ops("u")) != n {
					t.Errorf("after %v: told again: %v", after, f.ops("u"))
				}
			})
		}
	}
}

func TestOutcomeAgainBringsTheNextSync(t *testing.T) {
	steps := []time.Duration{time.Millisecond, 5 * time.Second, time.Hour, 0}
	f := &fakeSyncer{}
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		return podworker.Outcome{Acted: true, Again: steps[min(len(f.ops("u")), len(steps))-1]}, nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		begin := time.Now()
		time.Sleep(3 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, want := range []time.Duration{0, time.Millisecond, 5*time.Second + time.Millisecond} {
			if i >= len(f.calls) || f.calls[i].at.Sub(begin) != want {
				t.Fatalf("sync %d is not after %v: %v", i, want, f.calls)
			}
		}
		if took := f.calls[3].at.Sub(f.calls[2].at); took < time.Minute || took > 90*time.Second {
			t.Errorf("a sync %v after an Again of an hour, want Resync", took)
		}
	})
}

func TestFirstSyncsAreLimited(t *testing.T) {
	f := &fakeSyncer{}
	f.sync = func(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
		d := time.Second
		if w.Pod.Name == "slow" {
			d = time.Hour
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return podworker.Outcome{}, nil
	}
	run(t, f, podworker.Config{FirstSyncs: 2}, func(m *podworker.Manager) {
		m.Update(create(newPod("slow", "slow")))
		for i := range 6 {
			m.Update(create(newPod(fmt.Sprint(i), fmt.Sprint(i))))
		}
		synctest.Wait()
		if n := len(f.calls); n != 2 {
			t.Fatalf("%d syncs at a time, want 2", n)
		}
		if st, _ := m.State("5"); st.WaitingFor == "" {
			t.Error("a pod that waits for its turn does not say so")
		}
		m.Update(kill(newPod("5", "5"), nil)) // does not wait for a place
		wantOps(t, f, "5", "terminating", "terminated")
		time.Sleep(5500 * time.Millisecond)
		wantOps(t, f, "4", "sync")
		// The slow one has lost its place after 10 s.
		time.Sleep(5 * time.Second)
		for i := range 2 {
			m.Update(create(newPod(fmt.Sprint("x", i), fmt.Sprint("x", i))))
		}
		wantOps(t, f, "x0", "sync")
		wantOps(t, f, "x1", "sync")
	})
}

func TestSyncKnownPods(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(ctx context.Context, _ podworker.Work) error {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		if !m.CouldHaveRunningContainers("x") || m.ShouldContentBeRemoved("x") {
			t.Error("unknown pods count as gone before the wanted ones were told")
		}
		keep, drop, waiting := newStatic("keep", "a"), newStatic("drop", "b"), newStatic("waiting", "a")
		for _, p := range []*v1.Pod{keep, drop, waiting} {
			m.Update(create(p))
		}
		synctest.Wait()
		known := m.SyncKnownPods([]*v1.Pod{keep})
		if len(known) != 2 || known["keep"] != podworker.Sync || known["drop"] != podworker.Terminating {
			t.Errorf("known = %+v", known)
		}
		wantOps(t, f, "waiting")
		time.Sleep(2 * time.Second)
		wantOps(t, f, "drop", "sync", "terminating", "terminated")
		if !m.ShouldContentBeRemoved("drop") || m.ShouldContentBeRemoved("keep") {
			t.Error("content of the wrong pod is to be removed")
		}
		if known := m.SyncKnownPods([]*v1.Pod{keep}); len(known) != 1 {
			t.Errorf("known = %+v, want one", known)
		}
		if m.CouldHaveRunningContainers("x") || !m.ShouldContentBeRemoved("x") {
			t.Error("unknown pods may have something left after the wanted ones were told")
		}
	})
}

func TestShutdownClosesDone(t *testing.T) {
	f := &fakeSyncer{}
	f.terminate = func(ctx context.Context, _ podworker.Work) error { <-ctx.Done(); return ctx.Err() }
	late := make(chan struct{})
	var m *podworker.Manager
	run(t, f, podworker.Config{}, func(got *podworker.Manager) {
		m = got
		done := make(chan struct{})
		m.Update(create(newPod("u", "p")))
		m.Update(kill(newPod("u", "p"), &podworker.KillOptions{Done: done}))
		synctest.Wait()
		go func() { <-done }() // or the bubble does not end
	})
	m.Update(kill(newPod("u", "p"), &podworker.KillOptions{Done: late}))
	if !isClosed(late) {
		t.Error("Done stays open after Run")
	}
}

// Random updates from many sides never break the promises: calls are serial,
// a kill is never lost, Done is always closed, and two static pods of a name
// never live at the same time.
func TestPromisesUnderRandomUpdates(t *testing.T) {
	for seed := range uint64(30) {
		f := &fakeSyncer{}
		rng := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		living := map[string]types.UID{}
		chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) == 0 }
		f.sync = func(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
			mu.Lock()
			if other := living[w.Pod.Name]; other != "" && other != w.Pod.UID {
				t.Errorf("seed %d: %s starts while %s lives", seed, w.Pod.UID, other)
			}
			living[w.Pod.Name] = w.Pod.UID
			d := time.Duration(rng.IntN(3000)) * time.Millisecond
			mu.Unlock()
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return podworker.Outcome{}, ctx.Err()
			}
			if chance(5) {
				return podworker.Outcome{}, errors.New("flaky")
			}
			return podworker.Outcome{Acted: true}, nil
		}
		f.terminate = func(context.Context, podworker.Work) error {
			if chance(3) {
				return errors.New("flaky")
			}
			return nil
		}
		f.terminated = func(_ context.Context, w podworker.Work) error {
			if chance(3) {
				panic("flaky")
			}
			mu.Lock()
			defer mu.Unlock()
			if living[w.Pod.Name] == w.Pod.UID {
				living[w.Pod.Name] = ""
			}
			return nil
		}
		run(t, f, podworker.Config{FirstSyncs: 3}, func(m *podworker.Manager) {
			var dones []chan struct{}
			killed := map[types.UID]bool{}
			for range 200 {
				mu.Lock()
				i, what, pause := rng.IntN(12), rng.IntN(6), rng.IntN(1000)
				mu.Unlock()
				p := newStatic(fmt.Sprint("u", i), fmt.Sprint("p", i%4))
				switch what {
				case 0:
					done := make(chan struct{})
					dones = append(dones, done)
					killed[p.UID] = true
					m.Update(kill(p, &podworker.KillOptions{Done: done}))
				case 1:
					m.Resync(p.UID)
				default:
					if !killed[p.UID] {
						m.Update(create(p))
					}
				}
				time.Sleep(time.Duration(pause) * time.Millisecond)
			}
			m.SyncKnownPods(nil)
			time.Sleep(time.Hour)
			synctest.Wait()
			for i, d := range dones {
				if !isClosed(d) {
					t.Errorf("seed %d: Done %d stays open", seed, i)
				}
			}
			for _, st := range m.List() {
				if !st.Finished {
					t.Errorf("seed %d: %s is %v after an hour: %+v", seed, st.UID, st.Kind, st)
				}
			}
		})
	}
}

// A static pod that is over when it is first seen has nothing that could run
// beside another of its name.
func TestTerminalStaticPodBesideALivingOne(t *testing.T) {
	f := &fakeSyncer{}
	run(t, f, podworker.Config{Idle: func(types.UID) bool { return true }}, func(m *podworker.Manager) {
		m.Update(create(newStatic("living", "p")))
		over := newStatic("over", "p")
		over.Status.Phase = v1.PodSucceeded
		m.Update(create(over))
		wantOps(t, f, "living", "sync")
		wantOps(t, f, "over", "terminated")
		if st, _ := m.State("over"); !st.Finished || st.WaitingFor != "" {
			t.Errorf("state %+v", st)
		}
	})
}

func TestKillOfAPodThatEndsByItselfInterruptsIt(t *testing.T) {
	for _, tc := range []struct{ grace, want time.Duration }{{2, 2}, {30, 30}, {60, 30}} {
		f := &fakeSyncer{}
		f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
			return podworker.Outcome{Terminal: true}, nil
		}
		f.terminate = func(ctx context.Context, w podworker.Work) error {
			grace := w.Pod.Spec.TerminationGracePeriodSeconds
			if w.GracePeriodSeconds != nil {
				grace = w.GracePeriodSeconds
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(*grace) * time.Second):
				return nil
			}
		}
		run(t, f, podworker.Config{}, func(m *podworker.Manager) {
			m.Update(create(newPod("u", "p")))
			synctest.Wait()
			start := time.Now()
			grace, done := int64(tc.grace), make(chan struct{})
			m.Update(kill(newPod("u", "p"), &podworker.KillOptions{Why: podlife.Cause{Grace: &grace}, Done: done}))
			<-done
			if d := time.Since(start); d != tc.want*time.Second {
				t.Errorf("killed with %ds: ended after %v, want %ds", grace, d, tc.want)
			}
		})
	}
}

func TestRuntimeKillOfAKnownPod(t *testing.T) {
	f := &fakeSyncer{}
	broken := true
	f.terminated = func(context.Context, podworker.Work) error {
		if broken {
			return errors.New("still mounted")
		}
		return nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		rp := podworker.Update{Type: podworker.KillUpdate, RuntimePod: &podworker.RuntimePod{UID: "u", Name: "p", Namespace: "ns"}}
		m.Update(create(newPod("u", "p")))
		synctest.Wait()
		m.Update(rp)
		wantOps(t, f, "u", "sync", "terminating", "terminated")
		if !m.ShouldContentBeRemoved("u") {
			t.Error("a pod that only the runtime knew keeps its content")
		}
		m.Update(rp)
		wantOps(t, f, "u", "sync", "terminating", "terminated") // it has terminated already
		broken = false
		m.Resync("u")
		wantOps(t, f, "u", "sync", "terminating", "terminated", "terminated")
	})
}

func TestPanicAfterASyncIsContained(t *testing.T) {
	f := &fakeSyncer{}
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		return podworker.Outcome{After: func() { panic("ouch") }}, nil
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		wantOps(t, f, "u", "sync")
		m.Update(create(newPod("u", "p")))
		wantOps(t, f, "u", "sync", "sync")
	})
}

// A syncer that asks for a time that has passed is not called in a loop.
func TestRetryAtInThePastDoesNotSpin(t *testing.T) {
	f := &fakeSyncer{}
	f.sync = func(context.Context, podworker.Work) (podworker.Outcome, error) {
		return podworker.Outcome{}, retryError{time.Now().Add(-time.Second), "Late"}
	}
	run(t, f, podworker.Config{}, func(m *podworker.Manager) {
		m.Update(create(newPod("u", "p")))
		time.Sleep(10500 * time.Millisecond)
		if n := len(f.ops("u")); n != 12 {
			t.Errorf("%d calls in 10.5s, want one, another at once, and one a second", n)
		}
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := podworker.New(podworker.Config{Resync: -1, FirstSyncs: -5})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Syncer is required", "Resync is -1ns", "FirstSyncs is -5"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not tell of %q", err, want)
		}
	}
	reg := prometheus.NewRegistry()
	for i := range 2 {
		if _, err := podworker.New(podworker.Config{Syncer: &fakeSyncer{}, Metrics: reg}); err != nil {
			t.Errorf("manager %d in one registry: %v", i, err)
		}
	}
}

func TestStrings(t *testing.T) {
	var got []string
	for _, s := range []fmt.Stringer{
		podworker.SyncUpdate, podworker.ConfigUpdate, podworker.CreateUpdate, podworker.KillUpdate,
		podworker.Sync, podworker.Terminating, podworker.Terminated,
	} {
		got = append(got, s.String())
	}
	if want := []string{"sync", "update", "create", "kill", "sync", "terminating", "terminated"}; !slices.Equal(got, want) {
		t.Errorf("names %v, want the kubelet's %v", got, want)
	}
}

// finished reports whether nothing is left to do for a pod.
func finished(m *podworker.Manager, uid types.UID) bool {
	w, ok := m.State(uid)
	return ok && w.Finished
}
