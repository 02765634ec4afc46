package footprint

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// How much the heap grows between two collections of garbage, in percent of what is in use.
// At rest a small heap is worth a little CPU. While many pods start, a collection each few
// megabytes would cost more. A heap that grows further is still large
// at rest: what pods keep lies scattered among what their start left, and is never moved. Of 60 pods
// through an API server, each costs an eighth less CPU with 200 than with 100, and all 3 MiB more at rest; with 300
// a tenth less than with 200, and 5 MiB more.
const (
	restingGC = 50
	busyGC    = 200
	// busyWithin is how soon after a collection the next one says that the agent is
	// busy, and restAfter how late says that it is at rest again.
	busyWithin = 2 * time.Second
	restAfter  = time.Minute
)

// profileRate is how many bytes are allocated for each sample of the heap's profile. The
// usual ones are for larger heaps: a sample finds its place in a table of 1.4 MB, most of
// which is resident after a few hundred of them.
const (
	profileRate      = 4 << 20
	usualProfileRate = 512 << 10 // package runtime, MemProfileRate
)

// Process is the one that this program runs in.
type Process struct {
	garbage pacer
}

// Start is agent.StartProcess.
func Start() *Process {
	p := &Process{}
	if runtime.MemProfileRate == usualProfileRate {
		runtime.MemProfileRate = profileRate
	}
	p.garbage.start()
	calmMonitor()
	return p
}

// pacer sets the pace of garbage collection.
type pacer struct {
	mu   sync.Mutex
	on   bool
	busy bool
	last time.Time // of a collection
}

// start begins to set the pace, unless the environment does.
func (p *pacer) start() {
	if os.Getenv("GOGC") != "" {
		return
	}
	p.mu.Lock()
	p.on = true
	p.mu.Unlock()
	debug.SetGCPercent(restingGC)
	p.await()
}

// await has the next collection noted.
func (p *pacer) await() {
	runtime.AddCleanup(new([16]byte), func(p *pacer) { // not so small that others share its place
		p.collected(time.Now())
		p.await()
	}, p)
}

// collected notes a collection.
func (p *pacer) collected(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.last); !p.busy && since < busyWithin || p.busy && since > restAfter {
		p.set(!p.busy)
	}
	p.last = now
}

// set sets the pace. p.mu is held.
func (p *pacer) set(busy bool) {
	p.busy = busy
	if busy {
		debug.SetGCPercent(busyGC)
	} else {
		debug.SetGCPercent(restingGC)
	}
}

// rest keeps the heap small again.
func (p *pacer) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && p.busy {
		p.set(false)
	}
}
