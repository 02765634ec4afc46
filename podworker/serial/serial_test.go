package serial_test

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

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podworker/serial"
)

type (
	config  = serial.Config[string, int]
	call    = serial.Call[string, int]
	manager = serial.Manager[string, int]
)

// journal notes calls and finds those that overlap.
type journal struct {
	mu    sync.Mutex
	calls []string // key:update, with the stage if it is not 0
	busy  map[string]bool
	bad   []string
	last  map[string]int
}

func (j *journal) enter(c *call) (leave func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy == nil {
		j.busy, j.last = map[string]bool{}, map[string]int{}
	}
	key := c.Key
	if j.busy[key] {
		j.bad = append(j.bad, key)
	}
	j.busy[key], j.last[key] = true, c.Update
	line := fmt.Sprintf("%s:%d", key, c.Update)
	if c.Stage != 0 {
		line += fmt.Sprintf("@%d", c.Stage)
	}
	j.calls = append(j.calls, line)
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.busy[key] = false
	}
}

func (j *journal) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if got := strings.Join(j.calls, " "); got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// run runs test in a bubble beside a Manager whose handler is noted.
func run(t *testing.T, cfg config, test func(t *testing.T, m *manager, j *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		handle := cfg.Handle
		cfg := cfg
		cfg.Handle = func(ctx context.Context, c *call) (serial.Next, error) {
			defer j.enter(c)()
			if handle == nil {
				return serial.Rest(), nil
			}
			return handle(ctx, c)
		}
		m, err := serial.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		test(t, m, j)
		stop()
		if len(j.bad) > 0 {
			t.Errorf("calls overlapped for %v", j.bad)
		}
	})
}

// sleep is a handler that takes a second.
func sleep(ctx context.Context, _ *call) (serial.Next, error) {
	select {
	case <-time.After(time.Second):
		return serial.Rest(), nil
	case <-ctx.Done():
		return serial.Rest(), ctx.Err()
	}
}

func TestUpdatesCoalesce(t *testing.T) {
	sum := func(waiting, next int) int { return waiting + next }
	for name, tc := range map[string]struct {
		merge func(int, int) int
		want  string
	}{"latest": {nil, "a:1 a:4"}, "merged": {sum, "a:1 a:9"}} {
		t.Run(name, func(t *testing.T) {
			run(t, config{Handle: sleep, Merge: tc.merge}, func(t *testing.T, m *manager, j *journal) {
				m.Update("a", 1)
				synctest.Wait()
				for _, u := range []int{2, 3, 4} {
					m.Update("a", u)
				}
				if st, _ := m.State("a"); st.Activity != serial.Calling || !st.Waiting {
					t.Errorf("state %+v", st)
				}
				time.Sleep(3 * time.Second)
				j.want(t, tc.want)
			})
		})
	}
}

func TestUpdatesBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		m, err := serial.New(config{Handle: func(_ context.Context, c *call) (serial.Next, error) {
			defer j.enter(c)()
			return serial.Rest(), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		m.Update("a", 1)
		m.Update("a", 2)
		j.want(t, "")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		j.want(t, "a:2")
		if m.Update("a", 3) {
			t.Error("an update is accepted after Run")
		}
		if err := m.Run(ctx); !errors.Is(err, serial.ErrRunning) {
			t.Errorf("second Run: %v", err)
		}
	})
}

func TestBackoffDoublesAndResets(t *testing.T) {
	var fail = true
	var at []time.Time
	cfg := config{
		Backoff: serial.Backoff{First: time.Second, Max: 4 * time.Second},
		Handle: func(context.Context, *call) (serial.Next, error) {
			at = append(at, time.Now())
			if fail {
				return serial.Rest(), errors.New("boom")
			}
			return serial.Rest(), nil
		},
	}
	run(t, cfg, func(t *testing.T, m *manager, j *journal) {
		m.Update("a", 1)
		time.Sleep(12 * time.Second) // calls at 0, 1, 3, 7 and 11 s
		j.want(t, "a:1 a:1 a:1 a:1 a:1")
		for i, want := range []time.Duration{1, 2, 4, 4} {
			if d := at[i+1].Sub(at[i]); d != want*time.Second {
				t.Errorf("retry %d after %v, want %ds", i, d, want)
			}
		}
		st, _ := m.State("a")
		if st.Failures != 5 || st.Err == nil || st.Reason != "error" || !st.NextAt.Equal(at[4].Add(4*time.Second)) {
			t.Errorf("state %+v", st)
		}
		fail = false
		m.Update("a", 2) // ends the delay
		synctest.Wait()
		if st, _ := m.State("a"); st.Failures != 0 || st.Err != nil || !st.NextAt.IsZero() {
			t.Errorf("state %+v after a success", st)
		}
	})
}

func TestAnswers(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		handle func(context.Context, *call) (serial.Next, error)
		want   string // calls within 10 s
		known  bool
	}{
		"rest":       {func(context.Context, *call) (serial.Next, error) { return serial.Next{}, nil }, "a:1", true},
		"again":      {func(context.Context, *call) (serial.Next, error) { return serial.Again(4*time.Second, "poll"), nil }, "a:1 a:1 a:1", true},
		"done":       {func(context.Context, *call) (serial.Next, error) { return serial.Done(), nil }, "a:1", false},
		"in a stage": {func(context.Context, *call) (serial.Next, error) { return serial.Again(6*time.Second, "").In(3), nil }, "a:1 a:1@3", true},
		"enter": {func(_ context.Context, c *call) (serial.Next, error) {
			if c.Stage < 2 {
				return serial.Enter(c.Stage + 1), nil
			}
			return serial.Done(), nil
		}, "a:1 a:1@1 a:1@2", false},
		"a delay beside an error":            {func(context.Context, *call) (serial.Next, error) { return serial.Again(4*time.Second, "quota"), boom }, "a:1 a:1 a:1", true},
		"the end beside an error is ignored": {func(context.Context, *call) (serial.Next, error) { return serial.Done().In(2), boom }, "a:1 a:1", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config{Handle: tc.handle, Backoff: serial.Backoff{First: 6 * time.Second}}
			run(t, cfg, func(t *testing.T, m *manager, j *journal) {
				m.Update("a", 1)
				time.Sleep(10 * time.Second)
				j.want(t, tc.want)
				if _, known := m.State("a"); known != tc.known {
					t.Errorf("known %v, want %v", known, tc.known)
				}
			})
		})
	}
}

func TestPanicIsAnError(t *testing.T) {
	var got error
	cfg := config{
		Handle: func(_ context.Context, c *call) (serial.Next, error) {
			if c.Failures == 0 {
				panic("ouch")
			}
			return serial.Rest(), nil
		},
		OnError: func(_ string, err error, _ int, _ time.Duration) { got = err },
	}
	run(t, cfg, func(t *testing.T, m *manager, j *journal) {
		m.Update("a", 1)
		time.Sleep(2 * time.Second)
		j.want(t, "a:1 a:1")
		var p *serial.PanicError
		if !errors.As(got, &p) || p.Value != "ouch" || !strings.Contains(string(p.Stack), "serial_test.go") || p.Error() != "panic: ouch" {
			t.Errorf("error %v", got)
		}
	})
}

func TestInterrupt(t *testing.T) {
	cfg := config{Handle: sleep, Interrupts: func(_, next int) bool { return next < 0 }}
	run(t, cfg, func(t *testing.T, m *manager, j *journal) {
		begin := time.Now()
		m.Update("a", 1)
		synctest.Wait()
		m.Update("a", -2)
		j.want(t, "a:1 a:-2")
		m.Interrupt("a")
		j.want(t, "a:1 a:-2 a:-2")
		if st, _ := m.State("a"); st.Failures != 0 || time.Since(begin) != 0 {
			t.Errorf("state %+v after %v", st, time.Since(begin))
		}
		time.Sleep(2 * time.Second)
		if !m.Again("a") || m.Again("b") || m.Interrupt("b") {
			t.Error("the wrong keys are known")
		}
		j.want(t, "a:1 a:-2 a:-2 a:-2")
	})
}

func TestForget(t *testing.T) {
	run(t, config{Handle: sleep}, func(t *testing.T, m *manager, j *journal) {
		m.Forget("unknown")
		m.Update("a", 1)
		synctest.Wait()
		m.Update("a", 2)
		m.Forget("a") // cancels the call, and drops what waits
		j.want(t, "a:1")
		if len(m.List()) != 0 {
			t.Error("the key stays known")
		}
	})
	stubborn := func(context.Context, *call) (serial.Next, error) {
		time.Sleep(time.Second)
		return serial.Enter(7), nil
	}
	run(t, config{Handle: stubborn}, func(t *testing.T, m *manager, j *journal) {
		m.Update("a", 1)
		synctest.Wait()
		m.Forget("a")
		if m.Again("a") {
			t.Error("a forgotten key is called again")
		}
		m.Update("a", 2) // of the next life, which waits for the call
		j.want(t, "a:1")
		time.Sleep(1500 * time.Millisecond)
		j.want(t, "a:1 a:2")
		m.Forget("a")
		time.Sleep(2 * time.Second)
		j.want(t, "a:1 a:2")
	})
}

func TestLimit(t *testing.T) {
	hang := func(ctx context.Context, c *call) (serial.Next, error) {
		if c.Key == "hung" {
			<-ctx.Done()
		}
		return sleep(ctx, c)
	}
	cfg := config{
		Handle: hang, Limit: 2, SlotTimeout: 10 * time.Second,
		Limited: func(c *call) bool { return c.Update > 0 },
	}
	run(t, cfg, func(t *testing.T, m *manager, j *journal) {
		m.Update("hung", 1)
		synctest.Wait()
		for _, k := range []string{"a", "b", "c"} {
			m.Update(k, 1)
			synctest.Wait()
		}
		j.want(t, "hung:1 a:1")
		if st, _ := m.State("b"); st.Activity != serial.Queued {
			t.Errorf("b is %v", st.Activity)
		}
		m.Update("c", -1) // does not wait
		j.want(t, "hung:1 a:1 c:-1")
		time.Sleep(1500 * time.Millisecond)
		j.want(t, "hung:1 a:1 c:-1 b:1")
		time.Sleep(9 * time.Second) // the hung one no longer counts
		m.Update("x", 1)
		m.Update("y", 1)
		synctest.Wait()
		if x, _ := m.State("x"); x.Activity != serial.Calling {
			t.Errorf("x is %v", x.Activity)
		}
		if y, _ := m.State("y"); y.Activity != serial.Calling {
			t.Errorf("y is %v", y.Activity)
		}
	})
}

// What is embedded with Begin and End sees every call, and shares the lock.
func TestHooks(t *testing.T) {
	var began, ended []int
	cfg := config{
		Begin: func(c *call) bool { began = append(began, c.Update); return c.Update != 2 },
		End: func(c *call, r *serial.Result) {
			ended = append(ended, c.Update)
			if c.Update == 3 {
				r.Next = r.Next.In(9).Again(time.Second, "end")
			}
		},
	}
	run(t, cfg, func(t *testing.T, m *manager, j *journal) {
		for _, u := range []int{1, 2, 3} {
			l := m.Lock()
			l.Update("a", u)
			m.Unlock()
			synctest.Wait()
		}
		j.want(t, "a:1 a:3")
		if st, _ := m.State("a"); st.Stage != 9 || st.Reason != "end" || !slices.Equal(began, []int{1, 2, 3}) || !slices.Equal(ended, []int{1, 3}) {
			t.Errorf("began %v, ended %v, state %+v", began, ended, st)
		}
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := serial.New(config{Limit: -1, SlotTimeout: -2, Backoff: serial.Backoff{First: -3, Max: -4}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Handle is required", "Limit is -1", "SlotTimeout is -2ns", "First is -3ns", "Max is -4ns"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}

func TestBackoffDelay(t *testing.T) {
	for _, tc := range []struct {
		b        serial.Backoff
		failures int
		want     time.Duration
	}{
		{serial.Backoff{}, 1, time.Second},
		{serial.Backoff{}, 7, time.Minute},
		{serial.Backoff{First: 10 * time.Second, Max: 30 * time.Second}, 2, 20 * time.Second},
		{serial.Backoff{First: 10 * time.Second, Max: 30 * time.Second}, 3, 30 * time.Second},
		{serial.Backoff{First: time.Hour}, 3, time.Hour},
		{serial.Backoff{First: time.Hour, Max: time.Minute}, 1, time.Minute},
		{serial.Backoff{First: 1, Max: 1<<63 - 1}, 1 << 20, 1<<63 - 1},
	} {
		if d := tc.b.Delay(tc.failures); d != tc.want {
			t.Errorf("%+v after %d failures: %v, want %v", tc.b, tc.failures, d, tc.want)
		}
	}
}

// Random schedules never break the promises: calls of a key are serial, the
// last update is delivered, a merged update loses nothing, and no more calls
// count towards the limit than may.
func TestPromisesUnderRandomSchedules(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var mu sync.Mutex
		roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
		got := map[string]int{}  // sum of what was delivered, freshly
		want := map[string]int{} // of what was given
		inFlight, most := 0, 0
		cfg := config{
			Limit: 3, Merge: func(waiting, next int) int { return waiting + next },
			Interrupts: func(_, next int) bool { return next%7 == 0 },
			Backoff:    serial.Backoff{First: 100 * time.Millisecond, Max: time.Second},
		}
		cfg.Handle = func(ctx context.Context, c *call) (serial.Next, error) {
			mu.Lock()
			if c.Fresh {
				got[c.Key] += c.Update
			}
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			defer func() { mu.Lock(); inFlight--; mu.Unlock() }()
			select {
			case <-time.After(time.Duration(roll(800)) * time.Millisecond):
			case <-ctx.Done():
				return serial.Rest(), ctx.Err()
			}
			switch roll(6) {
			case 0:
				return serial.Rest(), errors.New("flaky")
			case 1:
				panic("flaky")
			case 2:
				return serial.Again(time.Duration(roll(500))*time.Millisecond, "poll"), nil
			case 3:
				return serial.Enter(serial.Stage(roll(3))), nil
			case 4:
				return serial.Done(), nil
			default:
				return serial.Rest(), nil
			}
		}
		run(t, cfg, func(t *testing.T, m *manager, j *journal) {
			for i := range 300 {
				key := fmt.Sprint("k", roll(8))
				switch roll(8) {
				case 0:
					m.Again(key)
				case 1:
					m.Interrupt(key)
				default:
					want[key] += i
					m.Update(key, i)
				}
				time.Sleep(time.Duration(roll(200)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for key, sum := range want {
				if got[key] != sum {
					t.Errorf("seed %d: %s was given %d and delivered %d", seed, key, sum, got[key])
				}
			}
			if most > 3 {
				t.Errorf("seed %d: %d calls at a time, want 3", seed, most)
			}
			for _, st := range m.List() {
				if st.Waiting || st.Activity == serial.Queued {
					t.Errorf("seed %d: %+v is left", seed, st)
				}
			}
		})
	}
}
