package check_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/probe/check"
)

// engine returns an Engine that runs until the test ends.
func engine(t *testing.T, cfg check.EngineConfig) *check.Engine {
	t.Helper()
	e, err := check.NewEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	go e.Run(t.Context())
	return e
}

// log notes when a check ran, and answers as it is told.
type log struct {
	mu       sync.Mutex
	start    time.Time
	at       []time.Duration
	verdicts []check.Outcome
	answer   func(n int) (check.Outcome, error)
	takes    func(n int) time.Duration
}

func newLog() *log { return &log{start: time.Now()} }

func (l *log) check(ctx context.Context) (check.Outcome, string, error) {
	l.mu.Lock()
	n := len(l.at)
	l.at = append(l.at, time.Since(l.start))
	l.mu.Unlock()
	if l.takes != nil {
		select {
		case <-time.After(l.takes(n)):
		case <-ctx.Done():
			return check.Failure, ctx.Err().Error(), nil
		}
	}
	if l.answer != nil {
		o, err := l.answer(n)
		return o, "", err
	}
	return check.Success, "", nil
}

func (l *log) done(r check.Round) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts = append(l.verdicts, r.Verdict)
	return true
}

func (l *log) wantAt(t *testing.T, want ...time.Duration) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.at, want) {
		t.Errorf("checks began at %v, want %v", l.at, want)
	}
}

const second = time.Second

func outcomes(s string) func(int) (check.Outcome, error) {
	return func(n int) (check.Outcome, error) {
		switch s[min(n, len(s)-1)] {
		case 's':
			return check.Success, nil
		case 'w':
			return check.Warning, nil
		case 'f':
			return check.Failure, nil
		case 'u':
			return check.Unknown, nil
		default:
			return check.Unknown, errors.New("cannot ask")
		}
	}
}

func TestTimes(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name   string
		timing check.Timing
		takes  time.Duration
		answer string
		until  time.Duration
		want   []time.Duration
	}{
		{name: "the API's defaults", until: 25 * second, want: []time.Duration{0, 10 * second, 20 * second}},
		{name: "initial delay", timing: check.Timing{InitialDelay: 7 * second, Period: second}, until: 8500 * ms, want: []time.Duration{7 * second, 8 * second}},
		{name: "negative initial delay", timing: check.Timing{InitialDelay: -second}, until: second, want: []time.Duration{0}},
		{name: "below a second", timing: check.Timing{Period: 250 * ms}, until: 600 * ms, want: []time.Duration{0, 250 * ms, 500 * ms}},
		{name: "missed checks are one", timing: check.Timing{Period: second, Timeout: 5 * second}, takes: 2300 * ms, until: 5 * second,
			want: []time.Duration{0, 2300 * ms, 4600 * ms}},
		{name: "a check as long as its timeout", timing: check.Timing{Period: 2 * second, Timeout: second}, takes: time.Hour, until: 5 * second,
			want: []time.Duration{0, 2 * second, 4 * second}},
		{name: "fast until a success", timing: check.Timing{Period: second, FastStart: true}, answer: "fffs", until: 2500 * ms,
			want: []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1000 * ms, 2000 * ms}},
		{name: "fast up to the period", timing: check.Timing{Period: second, FastStart: true}, answer: "f", until: 3500 * ms,
			want: []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1000 * ms, 2000 * ms, 3000 * ms}},
		{name: "errors are tried three times", timing: check.Timing{Period: 2 * second}, answer: "e", until: 3 * second,
			want: []time.Duration{0, 0, 0, 2 * second, 2 * second, 2 * second}},
		{name: "retries share one timeout", timing: check.Timing{Period: 5 * second, Timeout: second}, takes: 600 * ms, answer: "e", until: 4 * second,
			want: []time.Duration{0, 600 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l := engine(t, check.EngineConfig{}), newLog()
				if c.takes > 0 {
					l.takes = func(int) time.Duration { return c.takes }
				}
				if c.answer != "" {
					l.answer = outcomes(c.answer)
				}
				e.Add(check.Spec{Timing: c.timing, Check: l.check, Done: l.done})
				time.Sleep(c.until)
				l.wantAt(t, c.want...)
			})
		})
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		timing check.Timing
		answer string
		want   string // of each round: s, f, or - for none
	}{
		{name: "defaults", answer: "sffffs", want: "s--ffs"},
		{name: "three successes", timing: check.Timing{SuccessThreshold: 3, FailureThreshold: 1}, answer: "sssfssfsss", want: "--sf--f--s"},
		{name: "three failures", answer: "fffsff", want: "--fs--"},
		{name: "a warning is a success", timing: check.Timing{SuccessThreshold: 2}, answer: "swf", want: "-s-"},
		{name: "unknown is a failure", timing: check.Timing{FailureThreshold: 2}, answer: "ufs", want: "-fs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l := engine(t, check.EngineConfig{}), newLog()
				l.answer = outcomes(c.answer)
				c.timing.Period = second
				e.Add(check.Spec{Timing: c.timing, Check: l.check, Done: l.done})
				time.Sleep(time.Duration(len(c.want))*second - second/2)
				synctest.Wait()
				var got string
				for _, v := range l.verdicts {
					got += map[check.Outcome]string{check.Unknown: "-", check.Success: "s", check.Failure: "f"}[v]
				}
				if got != c.want {
					t.Errorf("verdicts of %s = %s, want %s", c.answer, got, c.want)
				}
			})
		})
	}
}

// An error counts for nothing, however often: two failures around it are in a
// row, and it is told how long it goes on.
func TestErrorsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := engine(t, check.EngineConfig{}), newLog()
		l.answer = outcomes("feeeeeeeeeff")
		var errs []int
		e.Add(check.Spec{Timing: check.Timing{Period: second}, Check: l.check, Done: func(r check.Round) bool {
			errs = append(errs, r.Errors)
			return l.done(r)
		}})
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 0, 0}; !slices.Equal(errs, want) {
			t.Errorf("errors in a row = %v, want %v", errs, want)
		}
		if want := []check.Outcome{0, 0, 0, 0, 0, check.Failure}; !slices.Equal(l.verdicts, want) {
			t.Errorf("verdicts = %v, want %v", l.verdicts, want)
		}
	})
}

func TestPanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, check.EngineConfig{})
		rounds := 0
		e.Add(check.Spec{
			Timing: check.Timing{Period: second}, Check: func(context.Context) (check.Outcome, string, error) { panic("oops") },
			Done: func(r check.Round) bool { rounds++; return r.Err != nil && r.Verdict == check.Unknown },
		})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if rounds != 2 {
			t.Errorf("rounds = %d, want 2 that end with an error", rounds)
		}
	})
}

func TestFastFailuresDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := engine(t, check.EngineConfig{}), newLog()
		l.answer = outcomes("f")
		var failed time.Duration
		e.Add(check.Spec{Timing: check.Timing{FastStart: true}, Check: l.check, Done: func(r check.Round) bool {
			if r.Verdict == check.Failure {
				failed = time.Since(l.start)
			}
			return failed == 0
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if failed != 20*second {
			t.Errorf("failed after %v, want 20s: three periods' worth", failed)
		}
	})
}

func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, check.EngineConfig{})
		for _, c := range []struct {
			spread                         check.Spread
			firstMax, secondMin, secondMax time.Duration // second: after the first
		}{
			{check.SpreadNone, 0, 10 * second, 10 * second},
			{check.SpreadFirst, 10 * second, 10 * second, 10 * second},
			{check.SpreadSecond, 0, 5 * second, 10 * second},
		} {
			firsts, seconds := map[time.Duration]bool{}, map[time.Duration]bool{}
			for range 50 {
				l := newLog()
				p := e.Add(check.Spec{Timing: check.Timing{Spread: c.spread}, Check: l.check})
				time.Sleep(30 * second)
				p.Stop()
				synctest.Wait()
				first, gap := l.at[0], l.at[1]-l.at[0]
				if first > c.firstMax || gap < c.secondMin || gap > c.secondMax {
					t.Fatalf("spread %d: first after %v, second %v after it", c.spread, first, gap)
				}
				if third := l.at[2] - l.at[1]; third != 10*second {
					t.Fatalf("spread %d: third %v after the second, want a period", c.spread, third)
				}
				firsts[first], seconds[gap] = true, true
			}
			if c.spread == check.SpreadFirst && len(firsts) < 40 || c.spread == check.SpreadSecond && len(seconds) < 40 {
				t.Errorf("spread %d: %d different first checks and %d second ones of 50", c.spread, len(firsts), len(seconds))
			}
		}
	})
}

func TestStopCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := engine(t, check.EngineConfig{}), newLog()
		l.takes = func(int) time.Duration { return time.Hour }
		p := e.Add(check.Spec{Timing: check.Timing{Timeout: 30 * time.Minute}, Check: l.check, Done: l.done})
		time.Sleep(second)
		synctest.Wait()
		if _, n := e.Len(); n != 1 {
			t.Fatalf("%d checks run, want 1", n)
		}
		p.Stop()
		p.Stop()
		synctest.Wait()
		if w, n := e.Len(); w+n != 0 || len(l.verdicts) != 0 {
			t.Errorf("%d wait, %d run, rounds told: %v; want nothing left and nothing told", w, n, l.verdicts)
		}
		waiting := e.Add(check.Spec{Timing: check.Timing{InitialDelay: time.Hour, Spread: check.SpreadFirst}, Check: l.check})
		waiting.Stop()
		if w, _ := e.Len(); w != 0 {
			t.Errorf("a stopped probe waits")
		}
	})
}

func TestHungChecksHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late time.Duration
		e := engine(t, check.EngineConfig{Parallel: 8})
		hung := newLog()
		hung.takes = func(int) time.Duration { return time.Hour }
		for range 100 {
			e.Add(check.Spec{Timing: check.Timing{Period: second, Timeout: second}, Check: hung.check})
		}
		time.Sleep(time.Minute) // each has timed out by now
		for range 50 {
			begin := time.Now()
			p := e.Add(check.Spec{Check: func(context.Context) (check.Outcome, string, error) {
				late = max(late, time.Since(begin))
				return check.Success, "", nil
			}})
			time.Sleep(300 * time.Millisecond)
			p.Stop()
		}
		synctest.Wait()
		if late > 0 {
			t.Errorf("a healthy probe waited %v for those that hang", late)
		}
		if _, n := e.Len(); n > 4 {
			t.Errorf("%d of 8 slots are with those that hang, want half at most", n)
		}
	})
}

func TestExpensiveChecksAreFewAndTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, check.EngineConfig{ParallelExpensive: 2})
		var mu sync.Mutex
		running, most := 0, 0
		rounds := make([]int, 10)
		for i := range rounds {
			e.Add(check.Spec{
				Timing: check.Timing{Period: second, Timeout: 5 * second}, Expensive: true,
				Check: func(ctx context.Context) (check.Outcome, string, error) {
					mu.Lock()
					running++
					most = max(most, running)
					rounds[i]++
					mu.Unlock()
					select {
					case <-time.After(second):
					case <-ctx.Done():
					}
					mu.Lock()
					running--
					mu.Unlock()
					return check.Success, "", nil
				},
			})
		}
		time.Sleep(51 * second)
		mu.Lock()
		defer mu.Unlock()
		if most != 2 {
			t.Errorf("%d ran at a time, want 2", most)
		}
		if lo, hi := slices.Min(rounds), slices.Max(rounds); hi-lo > 1 || lo < 9 {
			t.Errorf("rounds of each: %v; want the same for all, about 10", rounds)
		}
	})
}

// The end of Run is no failure of what was checked.
func TestEndOfRunTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := check.NewEngine(check.EngineConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		l := newLog()
		l.takes = func(int) time.Duration { return second }
		e.Add(check.Spec{Timing: check.Timing{Timeout: 2 * second}, Check: l.check, Done: l.done})
		time.Sleep(second / 2)
		cancel()
		if err := <-ended; err != nil || len(l.verdicts) != 0 {
			t.Errorf("Run: %v, rounds told: %v; want nil and none", err, l.verdicts)
		}
		if err := e.Run(ctx); err == nil {
			t.Error("a second Run did not fail")
		}
	})
}

func TestConfig(t *testing.T) {
	_, err := check.NewEngine(check.EngineConfig{Parallel: -1, ParallelExpensive: -2})
	want := "schedule: EngineConfig.Parallel is -1; want a positive number\nEngineConfig.ParallelExpensive is -2; want a positive number"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

// What a check says is bounded, whoever made it.
func TestLongOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, long, fails := engine(t, check.EngineConfig{}), strings.Repeat("x", 16<<20), errors.New("long")
		for _, err := range []error{nil, fmt.Errorf("%w: %s", fails, long)} {
			rounds := 0
			p := e.Add(check.Spec{
				Check: func(context.Context) (check.Outcome, string, error) { return check.Failure, long, err },
				Done: func(r check.Round) bool {
					rounds++
					if len(r.Output) > check.MaxOutput || r.Err != nil && len(r.Err.Error()) > check.MaxOutput || err != nil && !errors.Is(r.Err, fails) {
						t.Errorf("%d bytes of output, error %.20q; want %d at most of each, and the error to be found", len(r.Output), r.Err, check.MaxOutput)
					}
					return false
				},
			})
			synctest.Wait()
			p.Stop()
			if rounds != 1 {
				t.Errorf("%d rounds, want 1", rounds)
			}
		}
	})
}
