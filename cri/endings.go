package cri

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Limits of the cached statuses of exited containers: their number, the bytes of the
// labels, annotations and message of each, and the sum of these bytes. The status of a
// container beyond the limits is read from the runtime each time.
const (
	maxDead    = 4096
	maxKept    = 16 << 10
	maxKeptAll = 8 << 20
)

// endings caches the statuses of exited containers, which change only if the container is
// started again. Without it, each inspection of a pod would read the statuses of all its
// exited containers. A status is dropped at the next inspection or list after its container
// was removed.
type endings struct {
	mu    sync.Mutex
	pods  map[types.UID]map[string]observed.Container // statuses by the pod's UID and the container's ID
	count int
	// bytes is the sum of keptBytes over all containers.
	bytes int
}

func newEndings() *endings {
	return &endings{pods: map[types.UID]map[string]observed.Container{}}
}

// keptBytes returns the size of a status that counts towards maxKept and maxKeptAll:
// labels, annotations and message.
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

// add caches the status of an exited container, unless it is beyond the limits. An older
// status of the container is dropped in any case.
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

// forget drops the status of a container that runs again or is gone.
func (e *endings) forget(uid types.UID, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(uid, id)
}

// keep drops the containers of a pod for which exists returns false. It calls exists with mu
// held.
func (e *endings) keep(uid types.UID, exists func(id string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepLocked(uid, exists)
}

// keepAll does the same as keep, for all pods.
func (e *endings) keepAll(exists func(id string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid := range e.pods {
		e.keepLocked(uid, exists)
	}
}

func (e *endings) keepLocked(uid types.UID, exists func(id string) bool) {
	for id := range e.pods[uid] {
		if !exists(id) {
			e.drop(uid, id)
		}
	}
}

// drop does the work of forget. The caller holds mu.
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
