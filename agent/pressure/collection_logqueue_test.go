package pressure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/logrotate"
)

// hungRotator blocks until it is free, and notes what it was asked.
type hungRotator struct {
	free chan struct{}

	mu    sync.Mutex
	calls []string
}

func (r *hungRotator) note(call string) {
	<-r.free
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *hungRotator) Watch(l logrotate.Log) { r.note("watch " + l.ID) }
func (r *hungRotator) Forget(id string)      { r.note("forget " + id) }

// While the rotator hangs, put returns; what it adds is there once, and bounded.
func TestLogQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newLogQueue(), &hungRotator{free: make(chan struct{})}
		logsOf := func(uid types.UID) ([]logrotate.Log, error) {
			if uid == "unknown" {
				return nil, errors.New("the runtime does not answer")
			}
			return []logrotate.Log{{ID: "of-" + string(uid)}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); q.run(ctx, r, logsOf) }()

		q.put("first", nil)
		synctest.Wait() // it hangs in the rotator
		q.put("unknown", []string{"dead"})
		for range 3 {
			q.put("again", []string{"dead"})
		}
		if pods, dead := len(q.pods), len(q.ended); pods != 2 || dead != 1 {
			t.Errorf("%d pods and %d containers wait, want 2 and 1", pods, dead)
		}
		told := 0
		for i := range 2 * maxQueued {
			if q.put(types.UID(fmt.Sprint("uid-", i)), nil) {
				told++
			}
		}
		if n := len(q.pods) + len(q.ended); n != maxQueued || told != 1 {
			t.Errorf("%d wait, want at most %d; told of it %d times", n, maxQueued, told)
		}
		close(r.free)
		synctest.Wait()
		if len(r.calls) != 2+maxQueued-2 || r.calls[0] != "watch of-first" || r.calls[1] != "forget dead" || !slices.Contains(r.calls, "watch of-again") {
			t.Errorf("%d calls, of which the first are %q", len(r.calls), r.calls[:2])
		}
		if q.full || q.put("later", nil) {
			t.Error("the queue is still full")
		}
		synctest.Wait()
		if last := r.calls[len(r.calls)-1]; last != "watch of-later" {
			t.Errorf("last call %q", last)
		}
		cancel()
		<-ended
	})
}
