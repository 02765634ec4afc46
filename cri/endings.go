package cri

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Bounds of what is remembered of exited containers: how many, the labels,
// annotations and message of each, and all of these together, both in bytes.
// Whoever has more asks the runtime again.
const (
	maxDead    = 4096
	maxKept    = 16 << 10
	maxKeptAll = 8 << 20
)

// endings are the statuses of exited containers, which do not change again unless the
// container begins anew. Without them each look at a pod would ask for all of its
// dead containers. They go with their containers: at the next look at their pod, not
// only at the next list, which may be minutes away.
type endings struct {
	mu    sync.Mutex
	pods  map[types.UID]map[string]observed.Container // by ID
	count int
	// bytes is the sum of keptBytes over all of them; labels and messages are what
	// varies.
	bytes int
}

func newEndings() *endings {
	return &endings{pods: map[types.UID]map[string]observed.Container{}}
}

// keptBytes is what a container counts for in maxKept and maxKeptAll.
func keptBytes(c *observed.Container) int {
	return sizeOf(c.Labels) + sizeOf(c.Annotations) + len(c.Message)
}

// get returns the status of an exited container. Its maps are shared and read-only.
func (e *endings) get(uid types.UID, id string) (observed.Container, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.pods[uid][id]
	return c, ok
}

// add remembers the status of an exited container, in place of an older one, or not
// at all if there is no room: then the next look asks again.
func (e *endings) add(uid types.UID, c *observed.Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(uid, c.ID)
	size := keptBytes(c)
	if size > maxKept || e.bytes+size > maxKeptAll || e.count >= maxDead {
		return
	}
	if e.pods[uid] == nil {
		e.pods[uid] = map[string]observed.Container{}
	}
	e.pods[uid][c.ID] = *c
	e.count++
	e.bytes += size
}

// forget drops a container that is said to run again, or to be gone.
func (e *endings) forget(uid types.UID, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(uid, id)
}

// keep drops the containers of a pod that are not there any more. there is called
// with mu held, as in keepAll.
func (e *endings) keep(uid types.UID, there func(id string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepLocked(uid, there)
}

// keepAll does so for all pods.
func (e *endings) keepAll(there func(id string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid := range e.pods {
		e.keepLocked(uid, there)
	}
}

func (e *endings) keepLocked(uid types.UID, there func(id string) bool) {
	for id := range e.pods[uid] {
		if !there(id) {
			e.drop(uid, id)
		}
	}
}

// drop is forget with mu held.
func (e *endings) drop(uid types.UID, id string) {
	c, ok := e.pods[uid][id]
	if !ok {
		return
	}
	e.count--
	e.bytes -= keptBytes(&c)
	if delete(e.pods[uid], id); len(e.pods[uid]) == 0 {
		delete(e.pods, uid)
	}
}
