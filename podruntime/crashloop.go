package podruntime

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// crashLoops delays the restarts of containers that keep ending. The first
// restart is immediate; each later one waits twice as long as the one before,
// counted from the container's end. A container that lasted twice the longest
// delay begins anew.
type crashLoops struct {
	initial, limit time.Duration

	mu      sync.Mutex
	entries map[crashKey]crashEntry
}

// crashKey is what a delay belongs to. A change of image or resources is a
// new attempt.
type crashKey struct {
	uid         types.UID
	name, image string
	resources   string
	hash        string
}

type crashEntry struct {
	delay   time.Duration
	updated time.Time // the last restart
}

func newCrashLoops(initial, limit time.Duration) *crashLoops {
	return &crashLoops{initial: initial, limit: limit, entries: map[crashKey]crashEntry{}}
}

func keyOf(pod *v1.Pod, c *v1.Container) crashKey {
	return crashKey{uid: pod.UID, name: c.Name, image: c.Image, resources: c.Resources.String(), hash: podspec.Hash(c)}
}

// heldUntil tells until when a container that ended must wait, and the delay;
// the zero time means that it may start now.
func (b *crashLoops) heldUntil(key crashKey, last *observed.Container, now time.Time) (time.Time, time.Duration) {
	if last == nil || last.State != observed.Exited {
		return time.Time{}, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		if e, ok = b.derive(key, last); !ok {
			return time.Time{}, 0
		}
		b.entries[key] = e
	}
	if b.expired(e, last) {
		return time.Time{}, 0
	}
	if until := last.FinishedAt.Add(e.delay); now.Before(until) {
		return until, e.delay
	}
	return time.Time{}, 0
}

func (b *crashLoops) expired(e crashEntry, last *observed.Container) bool {
	return last.FinishedAt.Sub(e.updated) > 2*b.limit
}

// derive makes up for what an earlier life of the agent knew: a container
// that was restarted n times has waited n-1 times.
func (b *crashLoops) derive(key crashKey, last *observed.Container) (crashEntry, bool) {
	for k := range b.entries {
		if k.uid == key.uid && k.name == key.name {
			return crashEntry{}, false // known in this life: it was edited
		}
	}
	if last.Hash != "" && last.Hash != key.hash {
		return crashEntry{}, false // edited while the agent was away
	}
	if last.RestartCount == 0 || last.StartedAt.IsZero() {
		return crashEntry{}, false
	}
	delay := b.initial
	for range last.RestartCount - 1 {
		if delay *= 2; delay >= b.limit {
			break
		}
	}
	return crashEntry{delay: min(delay, b.limit), updated: last.StartedAt}, true
}

// restarted takes note of a restart.
func (b *crashLoops) restarted(key crashKey, last *observed.Container, now time.Time) {
	if last == nil || last.State != observed.Exited {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	switch {
	case !ok, b.expired(e, last):
		e.delay = b.initial
	default:
		e.delay = min(2*e.delay, b.limit)
	}
	e.updated = now
	b.entries[key] = e
}

func (b *crashLoops) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.entries {
		if k.uid == uid {
			delete(b.entries, k)
		}
	}
}
