package agent

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"go.uber.org/zap"
)

// eventsPerPod bounds what is remembered of one pod, and of the node. A repeated
// event counts once, so this is a pod's variety, not its length of life.
const eventsPerPod = 32

// eventLog remembers the newest events of every known pod and hands each on
// to Config.Events. Equal events of one pod are merged and counted, as the
// API server's event series are.
type eventLog struct {
	log  *zap.Logger
	next EventRecorder // may be nil

	mu   sync.Mutex
	pods map[types.UID][]v1.Event // oldest first
}

func newEventLog(log *zap.Logger, next EventRecorder) *eventLog {
	return &eventLog{log: log, next: next, pods: map[types.UID][]v1.Event{}}
}

// Event records one event of pod. It never blocks on Config.Events for
// longer than that recorder does.
func (e *eventLog) Event(pod *v1.Pod, eventType, reason, message string) {
	if pod == nil {
		return
	}
	e.log.Debug("event", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("type", eventType),
		zap.String("reason", reason), zap.String("message", message))
	e.remember(pod, eventType, reason, message, time.Now())
	if e.next != nil {
		e.next.Event(pod, eventType, reason, message)
	}
}

func (e *eventLog) remember(pod *v1.Pod, eventType, reason, message string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods[pod.UID] = addEvent(e.pods[pod.UID], v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace},
		InvolvedObject: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
		Type: eventType, Reason: reason, Message: message,
	}, now)
}

// addEvent adds an event to those of one object, oldest first, which it may
// change: one that is there already is counted once more, and the oldest goes
// when there are too many.
func addEvent(evs []v1.Event, ev v1.Event, now time.Time) []v1.Event {
	for i := range evs {
		if was := evs[i]; was.Reason == ev.Reason && was.Message == ev.Message && was.Type == ev.Type {
			was.Count++
			was.LastTimestamp = metav1.NewTime(now)
			return append(append(evs[:i:i], evs[i+1:]...), was)
		}
	}
	if len(evs) >= eventsPerPod {
		evs = append(evs[:0:0], evs[1:]...)
	}
	ev.Count, ev.FirstTimestamp, ev.LastTimestamp = 1, metav1.NewTime(now), metav1.NewTime(now)
	return append(evs, ev)
}

// of returns a copy of the events of a pod, oldest first.
func (e *eventLog) of(uid types.UID) []v1.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]v1.Event(nil), e.pods[uid]...)
}

// forget drops the events of every pod that keep does not name.
func (e *eventLog) forget(keep func(types.UID) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid := range e.pods {
		if !keep(uid) {
			delete(e.pods, uid)
		}
	}
}
