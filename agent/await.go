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

// Pods that are not decided on yet: nobody is asked about them, and their status is left alone.

// reasonUnconfirmed is why a pod waits that is only remembered: it may be over.
const reasonUnconfirmed = "AwaitingAPIServer"

// awaits has a pod wait if it cannot be decided on yet, and reports whether it does. What it waited
// for may be there when the wait has been noted: nobody would end the wait then.
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
		a.admission.Turn() // a pod that waits for its end counts
		if noted == reason {
			return true
		}
		a.log.Info("pod waits", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("uid", string(pod.UID)), zap.String("for", reason))
	}
}

// lacks returns what has to happen before a pod is decided on; "" is nothing.
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

// ended has the loop decide on a pod that came back while it was ended. It is called by the workers.
func (a *Agent) ended(uid types.UID) {
	if why := a.book.Get(uid).Why; why != nil && why.Reason == book.AwaitingEnd {
		host{a}.Readmit()
	}
}
