package pressure

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/logrotate"
	"github.com/nodewright/nodewright/internal/wake"
)

// maxQueued limits the pods and containers in a logQueue, far above the numbers on a large node.
const maxQueued = 8192

// rotator watches logs; *logrotate.Manager implements it. Its methods may wait for a disk, since
// the manager holds its lock while it adds a watch.
type rotator interface {
	Watch(logrotate.Log)
	Forget(container string)
}

// logQueue passes changes in the runtime from the agent's loop to a goroutine that may wait. Each
// pod and each container is in it at most once.
type logQueue struct {
	wake wake.Signal // the queue is not empty

	mu    sync.Mutex
	pods  map[types.UID]bool // pods whose running containers are to be watched
	ended map[string]bool    // containers whose logs are no longer watched
	full  bool               // a change was dropped since the last take
}

func newLogQueue() logQueue {
	return logQueue{wake: wake.New(), pods: map[types.UID]bool{}, ended: map[string]bool{}}
}

// put adds a changed pod and its ended containers. It does not block. It returns true when the
// queue becomes full: until the next take, new entries are dropped.
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
	q.wake.Set()
	return false
}

// take returns all entries of the queue and empties it.
func (q *logQueue) take() (pods map[types.UID]bool, ended map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pods, ended = q.pods, q.ended
	q.pods, q.ended, q.full = map[types.UID]bool{}, map[string]bool{}, false
	return pods, ended
}

// run passes the entries to the rotator until ctx ends. If a pod's logs cannot be listed now, the
// next event of the pod or the rotator's own checks find them.
func (q *logQueue) run(ctx context.Context, checker rotator, logsOf func(types.UID) ([]logrotate.Log, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		pods, ended := q.take()
		for id := range ended {
			checker.Forget(id)
		}
		for uid := range pods {
			logs, _ := logsOf(uid)
			for _, l := range logs {
				checker.Watch(l)
			}
		}
	}
}
