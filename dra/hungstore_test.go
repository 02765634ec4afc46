package dra_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

// While the disk hangs, whoever asks about other pods is answered at once, and
// pods that have their claims are not held up.
func TestHungStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "old", "gone"), claim("b", "new"), claim("c", "gone"))
		old, gone, fresh := pod("old", "a"), pod("gone", "a", "c"), pod("new", "b")
		r.prepare(old)
		r.prepare(gone)
		r.stop()
		free := make(chan struct{})
		r.store.Fault(checkpointtest.Hang(free, "write", "delete"))
		r.start(map[types.UID][]string{"old": {"main"}})
		r.offer(r.gpu)

		begin := time.Now()
		prepared := make(chan error, 1)
		go func() { prepared <- r.Prepare(t.Context(), fresh) }()
		r.Retain(func(uid types.UID) bool { return uid != "gone" })
		synctest.Wait() // both wait for the disk
		r.prepare(old)
		if ids, err := r.Attachment(old, "main"); err != nil || len(ids) != 1 {
			t.Errorf("attachment %v, %v", ids, err)
		}
		if len(r.Health("old", "main")) != 1 || len(r.Holdings("old", "main")) != 1 {
			t.Errorf("health %v, holdings %v", r.Health("old", "main"), r.Holdings("old", "main"))
		}
		r.Retain(func(uid types.UID) bool { return uid != "gone" })
		if took := time.Since(begin); took != 0 {
			t.Errorf("waited %v for the disk", took)
		}
		close(free)
		if err := <-prepared; err != nil {
			t.Error(err)
		}
	})
}

// What earlier pods used is undone also if the disk did not tell of it at first.
func TestLateRecords(t *testing.T) {
	for _, tc := range []struct {
		name  string
		late  string // the calls that hung at the start for longer than they last
		times int
		tries int    // of Restore
		again string // expected call for the running pod
	}{
		{"not even their names", "keys", 2, 3, ""},
		{"single ones", "read", 3, 1, "prepare b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.claims.put(claim("a", "gone"), claim("b", "gone", "stays"))
				r.prepare(pod("gone", "a", "b"))
				r.prepare(pod("stays", "b"))
				r.stop()
				r.called("prepare a,b")
				left := tc.times
				r.store.Fault(func(call, key string) error {
					if left == 0 || call != tc.late || call == "read" && !strings.HasPrefix(key, "claim.") {
						return nil
					}
					left--
					return fmt.Errorf("%s %s: %w", call, key, os.ErrDeadlineExceeded)
				})
				r.tries = tc.tries
				r.start(map[types.UID][]string{"stays": {"main"}})
				r.offer(r.gpu)
				r.prepare(pod("stays", "b"))
				r.called(tc.again)
				time.Sleep(5 * time.Minute)
				r.Retain(func(uid types.UID) bool { return uid == "stays" })
				synctest.Wait()
				r.called("unprepare a")
				if ids, err := r.Attachment(pod("stays", "b"), "main"); err != nil || len(ids) != 1 {
					t.Errorf("attachment %v, %v", ids, err)
				}
				r.unprepare("stays")
				r.called("unprepare b")
				if keys, err := r.store.Keys(); len(keys) > 0 || err != nil {
					t.Errorf("records %v, %v", keys, err)
				}
			})
		})
	}
}
