package dra_test

import (
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
