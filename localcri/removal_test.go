package localcri

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Once a removal was asked for, no start begins: the container is killed first and its state is
// written later, and what starts in between would run after its record is gone.
func TestStartIsRefusedDuringRemoval(t *testing.T) {
	b := newBench(t)
	id := b.container(b.sandbox("p"), "c")
	c, err := b.rt.lookContainer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	removal := newOp()
	c.pod.mu.Lock()
	c.removing = removal
	c.pod.mu.Unlock()
	if err := b.rt.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "is being removed") {
		t.Errorf("start during a removal: %v", err)
	}
	removal.finish(errStopped)
	if err := b.rt.StartContainer(t.Context(), id); err != nil {
		t.Errorf("start after a removal that failed: %v", err)
	}
}

// Containers that are started and removed at once end without a process.
func TestNothingRunsOfWhatIsStartedAndRemovedAtOnce(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	const containers = 200
	var wg sync.WaitGroup
	for i := range containers {
		id := b.container(sb, fmt.Sprint("c", i))
		wg.Go(func() { _ = b.rt.StartContainer(t.Context(), id) })
		wg.Go(func() {
			if err := b.rt.RemoveContainer(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	alive := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := 0
		for _, pid := range b.executed {
			if b.processes[pid] != nil {
				n++
			}
		}
		return n
	}
	// The files of a removed container go afterwards, and its process before.
	for late := time.Now().Add(time.Minute); alive() > 0 && time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
	}
	if n := alive(); n > 0 {
		t.Errorf("%d processes of %d removed containers are alive", n, containers)
	}
}
