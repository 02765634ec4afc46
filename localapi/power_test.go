package localapi_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/durable/durabletest"
	"github.com/nodewright/nodewright/localapi/store"
)

var cuts = flag.Int("cuts", 6, "how often TestPowerCuts cuts the power")

var errPower = errors.New("the power is gone")

// supply is the power of a disk: it goes after some steps.
type supply struct {
	mu    sync.Mutex
	steps int // until it goes
	off   chan struct{}
}

func (s *supply) step() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps--; s.steps == 0 {
		close(s.off)
	}
	if s.steps <= 0 {
		return errPower
	}
	return nil
}

// inMemory returns a directory in memory if the machine has one: what a real disk takes
// to sync is of no use here.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "localapi")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A machine that loses power under a storm, with a disk that may have dropped all that it
// was not asked to sync, has what was acknowledged, and nothing half-written.
func TestPowerCuts(t *testing.T) {
	const clients, seed = 4, 7
	dir, rnd := inMemory(t), rand.New(rand.NewPCG(seed, 1))
	journal := durabletest.New(seed)
	var did [clients]map[string]*attempt
	for i := range did {
		did[i] = map[string]*attempt{}
	}
	objects, written := 0, 0
	for round := range *cuts {
		power := &supply{steps: 10 + rnd.IntN(600), off: make(chan struct{})}
		written += power.steps
		release := durable.Guard(dir, func(c durable.Change) error {
			if err := power.step(); err != nil {
				return err
			}
			journal.Note(c)
			return nil
		})
		a := start(t, store.NewDir(dir))
		var wg sync.WaitGroup
		for i := range did {
			wg.Go(func() { storm(a.url, fmt.Sprint("c", i), round*100_000+1, did[i]) })
		}
		wg.Wait() // each until it is refused
		select {
		case <-power.off:
		default:
			t.Fatalf("cut %d: the server fails while it has power", round)
		}
		a.stop()
		release()
		journal.LosePower()

		b := start(t, store.NewDir(dir))
		have := map[string]string{}
		for _, c := range must[v1.ConfigMapList](b, "GET", configMaps, "", nil).Items {
			have[c.Name] = c.Data["k"]
		}
		b.stop()
		for _, m := range did {
			for name, w := range m {
				w.check(t, fmt.Sprintf("cut %d: %s", round, name), have[name])
				objects++
			}
		}
		docs, err := store.NewDir(dir).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if d.Err != nil {
				t.Errorf("cut %d: %s: %v", round, d.Name, d.Err)
			}
		}
	}
	t.Logf("%d cuts after %d steps, %d objects looked at", *cuts, written, objects)
}
