package agent

import (
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podworker"
)

// Pods that cannot be decided on yet: no part is called for them, and their status does not change.

// reasonUnconfirmed is the reason of a stored pod that waits for the API server: the pod may have
// ended.
const reasonUnconfirmed = "AwaitingAPIServer"

// awaits makes a pod wait if it cannot be decided on yet, and reports whether the pod waits. The
// event that ends the wait may come before the wait is recorded, so awaits checks again
// afterwards.
func (a *Agent) awaits(pod *v1.Pod) bool {
	for {
		reason, message := a.lacks(pod)
		e := a.book.Get(pod.UID)
		noted := ""
		if e.Stage == book.Waiting {
			noted = e.Why.Reason
		}
		switch {
		case reason == "" && noted == book.AwaitingEnd:
			a.log.Info("pod restarted", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("uid", string(pod.UID)))
			a.metrics.Restarted.Inc()
			fallthrough
		case reason == "" && noted == reasonUnconfirmed:
			a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Stage, e.Why = book.Unknown, nil })
			return false
		case reason == "":
			return false
		}
		r := part.Rejection{Reason: reason, Message: message, RetryUntil: time.Now().Add(housekeepingEvery), Outside: true}
		a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Stage, e.Why = book.Waiting, &r })
		a.admission.Turn() // a pod that waits for its own end counts among the others
		if noted == reason {
			return true
		}
		a.log.Info("pod waits", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("uid", string(pod.UID)), zap.String("for", reason))
	}
}

// lacks returns why a pod cannot be decided on yet. reason is "" if it can.
func (a *Agent) lacks(pod *v1.Pod) (reason, message string) {
	switch w, works := a.workers.State(pod.UID); {
	case works && w.Kind != podworker.Sync && !w.Finished:
		return book.AwaitingEnd, "the pod came back while it was ended: it begins when that is over"
	case a.mayHaveEnded(pod):
		return reasonUnconfirmed, "the pod is only remembered, and the runtime has nothing of it: it may have ended"
	default:
		return "", ""
	}
}

// ended requests a decision on a pod that was created again while it terminated. Workers call it.
func (a *Agent) ended(uid types.UID) {
	if why := a.book.Get(uid).Why; why != nil && why.Reason == book.AwaitingEnd {
		host{a}.Readmit()
	}
}
