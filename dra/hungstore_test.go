package dra_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// hanging is a store on a disk that hangs: writes and deletions wait for free.
type hanging struct {
	*memory
	free chan struct{}
}

func (s *hanging) Write(key string, value []byte) error {
	<-s.free
	return s.memory.Write(key, value)
}

func (s *hanging) Delete(key string) error {
	<-s.free
	return s.memory.Delete(key)
}

// While the disk hangs, whoever asks about other pods is answered at once, and
// pods that have their claims are not held up.
func TestHungStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "old", "gone"), claim("b", "new"), claim("c", "gone"))
		old, gone, fresh := pod("old", "a"), pod("gone", "a", "c"), pod("new", "b")
		r.prepare(old)
		r.prepare(gone)
		r.stop()
		store := &hanging{r.store, make(chan struct{})}
		r.cfg.Store = store
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
		close(store.free)
		if err := <-prepared; err != nil {
			t.Error(err)
		}
	})
}

// late is a store on a disk that hung at the start for longer than its calls last.
type late struct {
	*memory
	keys, reads int // calls that are given up yet
}

func (s *late) Keys() ([]string, error) {
	if s.keys > 0 {
		s.keys--
		return nil, fmt.Errorf("list: %w", os.ErrDeadlineExceeded)
	}
	return s.memory.Keys()
}

func (s *late) Read(key string) ([]byte, error) {
	if s.reads > 0 && strings.HasPrefix(key, "claim.") {
		s.reads--
		return nil, fmt.Errorf("read %s: %w", key, os.ErrDeadlineExceeded)
	}
	return s.memory.Read(key)
}

// What earlier pods used is undone also if the disk did not tell of it at first.
func TestLateRecords(t *testing.T) {
	for _, tc := range []struct {
		name  string
		late  late
		tries int    // of Restore
		again string // expected call for the running pod
	}{
		{"not even their names", late{keys: 2}, 3, ""},
		{"single ones", late{reads: 3}, 1, "prepare b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.claims.put(claim("a", "gone"), claim("b", "gone", "stays"))
				r.prepare(pod("gone", "a", "b"))
				r.prepare(pod("stays", "b"))
				r.stop()
				r.called("prepare a,b")
				tc.late.memory = r.store
				r.cfg.Store = &tc.late
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
