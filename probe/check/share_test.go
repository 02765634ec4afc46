package check_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/probe/check"
)

// hang is a check that ends with its context only.
func hang(ctx context.Context) (check.Outcome, string, error) {
	<-ctx.Done()
	return check.Failure, "", nil
}

// bystander is a probe every 10 s, of which it notes how late its checks are.
type bystander struct {
	mu     sync.Mutex
	checks int
	last   time.Time
	gap    time.Duration // the longest between two checks
}

func (b *bystander) check(context.Context) (check.Outcome, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.checks++; b.checks > 1 {
		b.gap = max(b.gap, time.Since(b.last))
	}
	b.last = time.Now()
	return check.Success, "", nil
}

func TestHangingChecksOfAGroupDelayNoOther(t *testing.T) {
	for _, c := range []struct {
		name           string
		groups, probes int
		expensive      bool
		late           time.Duration
	}{
		{"commands of a pod", 1, 33, true, 0},
		{"many commands of a pod", 1, 200, true, 0},
		{"many connections of a pod", 1, 500, false, 0},
		{"many commands of many pods", 40, 50, true, 10 * second},
		{"many connections of many pods", 12, 300, false, 10 * second},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, ", bystander first: ", first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, b := engine(t, check.EngineConfig{}), &bystander{}
					begin := func() {
						e.Add(check.Spec{Group: "bystander", Expensive: c.expensive, Check: b.check})
					}
					if first {
						begin()
					}
					for g := range c.groups {
						for range c.probes {
							e.Add(check.Spec{
								Group: fmt.Sprint("pod ", g), Expensive: c.expensive, Check: hang,
								Timing: check.Timing{Timeout: time.Hour, Period: second, Spread: check.SpreadFirst},
							})
						}
					}
					time.Sleep(second / 2)
					if !first {
						begin()
					}
					time.Sleep(time.Hour)
					b.mu.Lock()
					defer b.mu.Unlock()
					if b.checks < 359 || b.gap > 10*second+c.late {
						t.Errorf("%d checks in an hour, %v at most between two; want 360, one every 10s", b.checks, b.gap)
					}
				})
			})
		}
	}
}

// A group's quick checks go on beside as many of its own that hang.
func TestHangingChecksOfAGroupLeaveItsOwnQuickOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b := engine(t, check.EngineConfig{}), &bystander{}
		e.Add(check.Spec{Group: "pod", Check: b.check})
		for range 300 {
			e.Add(check.Spec{Group: "pod", Check: hang, Timing: check.Timing{Timeout: 30 * second}})
		}
		time.Sleep(10 * time.Minute) // in which each has timed out
		b.mu.Lock()
		b.checks = 0
		b.mu.Unlock()
		time.Sleep(10 * time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.checks < 59 {
			t.Errorf("%d checks in 10 minutes beside 300 that hang, want 60", b.checks)
		}
	})
}

// A check that runs for long keeps no place, and counts for its group.
func TestHowManyChecksOfAGroupRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, check.EngineConfig{Parallel: 16})
		for g := range 10 {
			for range 10 {
				e.Add(check.Spec{Group: fmt.Sprint(g), Check: hang, Timing: check.Timing{Timeout: time.Hour}})
			}
		}
		synctest.Wait()
		if _, n := e.Len(); n != 16 {
			t.Errorf("%d checks run at first, want one for each of 16 places", n)
		}
		time.Sleep(30 * second)
		synctest.Wait()
		if w, n := e.Len(); n != 10*4 || w != 60 {
			t.Errorf("%d checks run and %d wait, want a quarter of 16 for each of 10 groups, and the rest", n, w)
		}
	})
}

// Groups with more checks that are due have no more turns.
func TestGroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, check.EngineConfig{Parallel: 4})
		var mu sync.Mutex
		rounds := map[string]int{}
		for g, probes := range map[string]int{"a": 1000, "b": 100, "c": 10, "d": 10} {
			for range probes {
				e.Add(check.Spec{Group: g, Timing: check.Timing{Period: 100 * time.Millisecond, Timeout: 2 * second}, Check: func(ctx context.Context) (check.Outcome, string, error) {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
					}
					mu.Lock()
					defer mu.Unlock()
					rounds[g]++
					return check.Success, "", nil
				}})
			}
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for g, n := range rounds {
			if n < 590 || n > 600 {
				t.Errorf("%d checks of group %s in a minute; want 600, a quarter of what was possible", n, g)
			}
		}
	})
}

// Whatever probes do: never more checks than the places and the shares, none
// is forgotten, and nothing is left at the end.
func TestPlacesAreKept(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's dice
			e := engine(t, check.EngineConfig{Parallel: 1 + r.IntN(20)})
			var mu sync.Mutex
			running, rounds := map[string]int{}, map[int]int{}
			groups, places := 1+r.IntN(5), e.Places()
			var probes []*check.Scheduled
			for i := range 10 + r.IntN(100) {
				g := fmt.Sprint(r.IntN(groups))
				takes, stuck := time.Duration(r.IntN(3000))*time.Millisecond, r.IntN(4) == 0
				probes = append(probes, e.Add(check.Spec{
					Group: g, Timing: check.Timing{Period: time.Duration(1+r.IntN(5)) * second, Timeout: time.Duration(1+r.IntN(20)) * second},
					Check: func(ctx context.Context) (check.Outcome, string, error) {
						mu.Lock()
						running[g]++
						all := 0
						for _, n := range running {
							all += n
						}
						if share := max(1, places/4); running[g] > share || all > places+groups*share {
							t.Errorf("%d checks of a group run, %d in all; want %d and %d at most", running[g], all, share, places+groups*share)
						}
						rounds[i]++
						mu.Unlock()
						if stuck {
							<-ctx.Done()
						} else {
							select {
							case <-time.After(takes):
							case <-ctx.Done():
							}
						}
						mu.Lock()
						running[g]--
						mu.Unlock()
						return check.Success, "", nil
					},
				}))
			}
			for range 20 {
				time.Sleep(time.Duration(r.IntN(60)) * second)
				i := r.IntN(len(probes))
				if i%3 == 0 {
					probes[i].Stop()
				}
			}
			time.Sleep(time.Hour)
			mu.Lock()
			for i := range probes {
				if i%3 != 0 && rounds[i] == 0 {
					t.Errorf("probe %d was never checked", i)
				}
			}
			mu.Unlock()
			for _, p := range probes {
				p.Stop()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if w, n := e.Len(); w+n != 0 || e.Groups() != 0 {
				t.Errorf("%d wait, %d run, %d groups are known after all has stopped; want none", w, n, e.Groups())
			}
		})
	}
}
