package agent

import (
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeEventRecorder is what an [EventRecorder] may be beside: it takes the
// events about the node itself. It must not block for long.
type NodeEventRecorder interface {
	NodeEvent(eventType, reason, message string)
}

// nodeEvents remembers the newest events about the node and hands each on to
// Config.Events, if that is a NodeEventRecorder. Blocks that tell of the node
// take it as their Events.
type nodeEvents struct {
	log  *zap.Logger
	next NodeEventRecorder // may be nil
	node v1.ObjectReference

	mu     sync.Mutex
	events []v1.Event // oldest first
}

func newNodeEvents(log *zap.Logger, node string, next EventRecorder) *nodeEvents {
	n := &nodeEvents{log: log}
	n.next, _ = next.(NodeEventRecorder)
	// The kubelet's events about its node bear the node's name as the UID:
	// whoever describes a node looks for them by it.
	n.node = v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	return n
}

// Event records one event about the node.
func (n *nodeEvents) Event(eventType, reason, message string) {
	n.log.Info("node event", zap.String("type", eventType), zap.String("reason", reason), zap.String("message", message))
	n.mu.Lock()
	n.events = addEvent(n.events, v1.Event{InvolvedObject: n.node, Type: eventType, Reason: reason, Message: message}, time.Now())
	n.mu.Unlock()
	if n.next != nil {
		n.next.NodeEvent(eventType, reason, message)
	}
}

// NodeEvents lists the remembered events about the node, oldest first.
func (a *Agent) NodeEvents() []v1.Event {
	n := a.nodeEvents
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]v1.Event(nil), n.events...)
}
