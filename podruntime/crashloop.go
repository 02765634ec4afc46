package podruntime

import (
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// crashLoops delays the restarts of containers that keep ending. How long is
// for the policy to say; here is what it goes by: how often a container was
// restarted, and when it ended.
type crashLoops struct {
	policy  Backoff
	memory  Memory // nil: none
	log     *zap.Logger
	failing atomic.Bool // the last write to memory failed

	// mu guards pods and stale. It is never held over a call of the memory; the
	// loops of a pod have a lock of their own for that.
	mu    sync.Mutex
	pods  map[types.UID]*podLoops
	stale map[string]bool // keys that the memory could not delete
}

// podLoops are the loops of one pod's containers.
type podLoops struct {
	// mu guards the rest, and is held while the memory reads or writes: the order
	// of writes for a pod is the order of its restarts.
	mu     turn
	loops  map[string]*crashLoop // by the container's name
	loaded bool                  // the memory was asked
	saved  bool                  // the memory has something
	dirty  bool                  // the memory has something else
	last   time.Time             // the last attempt to write it
}

// turn is a lock that is held over calls of a disk. It is a channel, as whoever waits for a
// disk that hangs has to let the time of a synctest bubble go on.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// crashLoop is what there is to know of a container that keeps ending.
type crashLoop struct {
	definition string // a change of it is a new attempt
	// restarts counts those in this loop; 0 before its first.
	restarts int
	delay    time.Duration // before the last restart
	old      string        // ID of an instance of another definition: its end delays nothing

	// When the instance of that ID ended, by the monotonic clock: once seen,
	// an end stays where it is however the wall clock jumps.
	id    string
	ended time.Time
}

// newCrashLoops reads nothing: what is remembered of a pod is loaded when the
// pod is first asked about.
func newCrashLoops(cfg *Config) *crashLoops {
	b := &crashLoops{policy: cfg.Backoff, memory: cfg.Memory, log: cfg.Log, pods: map[types.UID]*podLoops{}, stale: map[string]bool{}}
	if b.policy == nil {
		b.policy = DoublingBackoff{First: cfg.CrashBackoff, Max: cfg.MaxCrashBackoff}
	}
	return b
}

// definitionOf stands for what a container is made from: name, image and
// resources.
func definitionOf(c *v1.Container) string {
	// As with the kubelet, an edit of image or resources begins anew: it may be
	// what mends the container.
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q %q", c.Image, c.Resources.String(), podspec.Hash(c)) // a hash takes everything
	return fmt.Sprintf("%016x", h.Sum64())
}

// pod returns the loops of a pod, new ones for a pod not seen before.
func (b *crashLoops) pod(uid types.UID) *podLoops {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	if p == nil {
		p = &podLoops{mu: make(turn, 1), loops: map[string]*crashLoop{}}
		b.pods[uid] = p
	}
	return p
}

// heldUntil reports until when a container that ended must wait, and the delay;
// the zero time means that it may start now.
func (b *crashLoops) heldUntil(pod *v1.Pod, c *v1.Container, last *observed.Container, now time.Time) (time.Time, time.Duration) {
	if last == nil || last.State != observed.Exited {
		// Only an end is followed by a wait.
		return time.Time{}, 0
	}
	p := b.pod(pod.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := b.loop(p, pod, c, last)
	// The container was edited since it ended: who mended it shall not wait for
	// the old one.
	if l.old == last.ID {
		return time.Time{}, 0
	}
	if l.id != last.ID {
		// What ended in the future, as it seems after the clock was put
		// back, ended now.
		l.id, l.ended = last.ID, now.Add(-max(now.Sub(last.FinishedAt), 0))
	}
	// Asked anew each time, as the same end may be looked at many times: policies
	// are functions.
	delay := b.delay(b.crash(l, pod, c, last))
	if until := l.ended.Add(delay); now.Before(until) {
		return until, delay
	}
	return time.Time{}, 0
}

// restarted takes note of a restart.
// It does not write to the memory: save does, once for each sync.
func (b *crashLoops) restarted(pod *v1.Pod, c *v1.Container, last *observed.Container) {
	if last == nil || last.State != observed.Exited {
		return
	}
	p := b.pod(pod.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := b.loop(p, pod, c, last)
	p.dirty = true
	if l.old == last.ID {
		l.restarts, l.delay = 1, 0
		return
	}
	crash := b.crash(l, pod, c, last)
	l.restarts, l.delay = crash.Restarts+1, b.delay(crash)
}

// delay is what the policy says, at least none.
func (b *crashLoops) delay(c Crash) time.Duration { return max(b.policy.Delay(c), 0) }

// crash describes the end of a container.
func (b *crashLoops) crash(l *crashLoop, pod *v1.Pod, c *v1.Container, last *observed.Container) Crash {
	crash := Crash{
		Pod: pod, Container: c, ExitCode: last.ExitCode, Reason: last.Reason, Lived: lifetime(last),
		Restarts: l.restarts, Last: l.delay,
	}
	// Without a restart there is no loop to have come out of.
	if crash.Restarts > 0 && b.policy.Recovered(crash) {
		crash.Restarts, crash.Last = 0, 0
	}
	return crash
}

// lifetime is how long an instance ran, by the wall clock of the runtime's
// times: 0 if it never ran, or if the clock was put back meanwhile.
func lifetime(c *observed.Container) time.Duration {
	if c.StartedAt.IsZero() || c.FinishedAt.IsZero() {
		return 0
	}
	return max(c.FinishedAt.Sub(c.StartedAt), 0)
}

// loop is the container's loop: known in this life of the agent, remembered
// of an earlier one, or derived. p.mu is held.
func (b *crashLoops) loop(p *podLoops, pod *v1.Pod, c *v1.Container, last *observed.Container) *crashLoop {
	// Once for each pod, also if it fails: a damaged record does not mend itself.
	if !p.loaded {
		p.loaded = true
		b.load(p, pod.UID)
	}
	definition := definitionOf(c)
	l := p.loops[c.Name]
	switch {
	case l == nil, l.id == "" && l.restarts > int(last.RestartCount):
		// Nothing is known, or of another pod by that name: a loop never has
		// more restarts than the container.
		l = b.derive(definition, pod, c, last)
	// A new definition begins without crashes; last is an end of the old one.
	case l.definition != definition:
		l = &crashLoop{definition: definition, old: last.ID}
	}
	p.loops[c.Name] = l
	return l
}

// deriveMost is how many restarts are gone through to find a delay: more than
// any policy takes to reach its longest.
const deriveMost = 64

// derive makes up for what an earlier life of the agent knew: a container that
// was restarted n times in its life was so in this loop.
func (b *crashLoops) derive(definition string, pod *v1.Pod, c *v1.Container, last *observed.Container) *crashLoop {
	l := &crashLoop{definition: definition}
	if last.Hash != "" && last.Hash != podspec.Hash(c) {
		l.old = last.ID // edited while the agent was away
		return l
	}
	// A first end, or one of an instance that never ran: there is no loop yet.
	if last.RestartCount == 0 || last.StartedAt.IsZero() {
		return l
	}
	// All ends are taken to be like the last: nothing is known of the others.
	crash := Crash{Pod: pod, Container: c, ExitCode: last.ExitCode, Reason: last.Reason, Lived: lifetime(last)}
	for crash.Restarts < min(int(last.RestartCount), deriveMost) {
		crash.Last = b.delay(crash)
		crash.Restarts++
	}
	l.restarts, l.delay = int(last.RestartCount), crash.Last
	return l
}
