package keep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/types"
)

// rig is a Keeper of two stores, and what they were asked.
type rig struct {
	*Keeper
	calls  []string
	hangs  chan struct{} // not nil: the stores on disk wait for it
	err    error         // of the first store on disk
	wanted map[types.UID]bool
	again  int
	logs   *observer.ObservedLogs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	r := &rig{wanted: map[types.UID]bool{}, logs: logs}
	store := func(of string, disk bool) Store {
		return Store{Of: of, Retain: func(_ context.Context, keep func(types.UID) bool) error {
			if disk && r.hangs != nil {
				<-r.hangs
			}
			r.calls = append(r.calls, fmt.Sprintf("%s known=%t wanted=%t gone=%t", of, keep("known"), keep("wanted"), keep("gone")))
			if of == "directories" {
				return r.err
			}
			return nil
		}}
	}
	r.Keeper = New(Config{
		Memory: []Store{store("statuses", false)}, Disk: []Store{store("directories", true), store("records", true)},
		Wanted: func(uid types.UID) bool { return r.wanted[uid] }, Again: func() { r.again++ },
		Beside: func(ctx context.Context, fn func(context.Context)) { go fn(ctx) }, Log: zap.New(core),
	})
	return r
}

// pass is one pass of housekeeping, and returns the stores that it called.
func (r *rig) pass(t *testing.T) string {
	t.Helper()
	r.calls = nil
	r.Retire(t.Context(), map[types.UID]bool{"known": true}, r.Begin())
	synctest.Wait()
	names := []string{}
	for _, c := range r.calls {
		name, _, _ := strings.Cut(c, " ")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// What is in memory goes with each pass, what is on disks when it was asked for. A pod that came
// after the pass began keeps what it has on disks.
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if got := r.pass(t); got != "statuses" {
			t.Errorf("a pass that nobody asked to sweep called %q", got)
		}
		r.Ask()
		r.wanted["wanted"] = true
		r.pass(t)
		if want := []string{
			"statuses known=true wanted=false gone=false",
			"directories known=true wanted=true gone=false", "records known=true wanted=true gone=false",
		}; !slices.Equal(r.calls, want) {
			t.Errorf("called %q, want %q", r.calls, want)
		}
		if got := r.pass(t); got != "statuses" {
			t.Errorf("the next pass called %q", got)
		}
	})
}

// A store that fails keeps no other from being called, and is tried again after a minute.
func TestFailedSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.err = errors.New("device or resource busy")
		r.Ask()
		r.Due(time.Now())
		if got := r.pass(t); got != "statuses directories records" || r.logs.Len() != 1 {
			t.Errorf("called %q, %d lines in the log", got, r.logs.Len())
		}
		for i := range 3 {
			time.Sleep(59 * time.Second)
			if r.Due(time.Now()); r.pass(t) != "statuses" {
				t.Errorf("try %d comes early", i)
			}
			time.Sleep(time.Second)
			if r.Due(time.Now()); r.pass(t) != "statuses directories records" {
				t.Errorf("try %d does not come", i)
			}
		}
		r.err = context.Canceled
		time.Sleep(time.Minute)
		r.Due(time.Now())
		if r.pass(t); r.logs.Len() != 4 {
			t.Errorf("%d lines in the log, want 4: the end of the agent is no failure", r.logs.Len())
		}
	})
}

// One sweep at a time: what is asked for while one hangs follows it, and is asked for once.
func TestOneSweepAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hangs = make(chan struct{})
		for range 3 {
			r.Ask()
			if got := r.pass(t); got != "statuses" {
				t.Errorf("called %q while a sweep hangs", got)
			}
		}
		close(r.hangs)
		synctest.Wait()
		if got := len(r.calls); got != 3 || r.again != 1 {
			t.Errorf("%d calls, asked for again %d times", got, r.again)
		}
		if got := r.pass(t); got != "statuses directories records" {
			t.Errorf("what was asked for meanwhile called %q", got)
		}
		if got := r.pass(t); got != "statuses" || r.again != 1 {
			t.Errorf("then %q, asked for again %d times", got, r.again)
		}
	})
}

// Sweeps that nobody asks for come after 1, 2, 4, 8 and then each 10 minutes, and again after
// one minute when somebody has asked for one.
func TestSweepsWithoutACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := newRig(t), time.Now()
		minutes := func(n int) (out []int) {
			for range n {
				time.Sleep(time.Minute)
				if r.Due(time.Now()); r.pass(t) != "statuses" {
					out = append(out, int(time.Since(begin).Minutes()))
				}
			}
			return out
		}
		if got, want := minutes(37), []int{1, 3, 7, 15, 25, 35}; !slices.Equal(got, want) {
			t.Errorf("sweeps after %v minutes, want %v", got, want)
		}
		r.Ask()
		if got, want := minutes(7), []int{38, 39, 41}; !slices.Equal(got, want) {
			t.Errorf("then after %v minutes, want %v", got, want)
		}
	})
}
