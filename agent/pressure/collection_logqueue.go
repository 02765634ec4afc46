package pressure

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/logrotate"
)

// maxQueued bounds the pods and containers that wait in a logQueue: some dozen
// times what runs on a large node.
const maxQueued = 8192

// rotator watches logs; *logrotate.Manager does. Its methods may wait for a disk:
// the manager's lock is held while a watch of a file is added.
type rotator interface {
	Watch(logrotate.Log)
	Forget(container string)
}

// logQueue hands what happened in the runtime over from the agent's loop to a
// goroutine that may wait. Each pod and each container is in it once.
type logQueue struct {
	wake chan struct{} // something is there; capacity 1

	mu    sync.Mutex
	pods  map[types.UID]bool // whose running containers are to be watched
	ended map[string]bool    // containers whose logs are to be forgotten
	full  bool               // something was dropped since the last take
}

func newLogQueue() logQueue {
	return logQueue{wake: make(chan struct{}, 1), pods: map[types.UID]bool{}, ended: map[string]bool{}}
}

// put adds a pod of which something has changed, and its containers that have
// ended. It does not block. It returns true when the queue has just become full:
// until the next take everything that is new is dropped.
func (q *logQueue) put(pod types.UID, ended []string) (overflow bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pods)+len(q.ended)+1+len(ended) > maxQueued {
		overflow, q.full = !q.full, true
		return overflow
	}
	q.pods[pod] = true
	for _, id := range ended {
		q.ended[id] = true
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return false
}

// take empties the queue.
func (q *logQueue) take() (pods map[types.UID]bool, ended map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pods, ended = q.pods, q.ended
	q.pods, q.ended, q.full = map[types.UID]bool{}, map[string]bool{}, false
	return pods, ended
}

// run takes from the queue until ctx ends. A pod that cannot be looked at now is
// left to the next event about it, and to the rotator's own looks.
func (q *logQueue) run(ctx context.Context, to rotator, logsOf func(types.UID) ([]logrotate.Log, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		pods, ended := q.take()
		for id := range ended {
			to.Forget(id)
		}
		for uid := range pods {
			logs, _ := logsOf(uid)
			for _, l := range logs {
				to.Watch(l)
			}
		}
	}
}
