package local

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeExplainer is an [Agent] that explains the state of its node, for "agent why node".
// *nodeagent.Node implements it; its answer includes the answers of its parts.
type NodeExplainer interface {
	WhyNode() NodeWhy
}

// NodeWhy is the answer to "is the node short of anything, and what was done
// about it?".
type NodeWhy struct {
	Name string `json:"name"`
	// Runtime is the container runtime's endpoint. Network describes the pod network and why it was
	// chosen. "" means not known.
	Runtime string `json:"runtime,omitempty"`
	Network string `json:"network,omitempty"`
	// Advice has sentences about settings of the machine that disturb pods, and how to change them.
	Advice []string `json:"advice,omitempty"`
	// ShuttingDown reports that the machine is shutting down.
	ShuttingDown bool               `json:"shuttingDown,omitempty"`
	Conditions   []v1.NodeCondition `json:"conditions,omitempty"`
	Figures      []NodeFigure       `json:"figures,omitempty"`
	// Work has the agent's current work of each kind.
	Work []NodeWork `json:"work,omitempty"`
	// Decisions are the last decisions, oldest first.
	Decisions []NodeDecision `json:"decisions,omitempty"`
	Events    []v1.Event     `json:"events,omitempty"`
	// Parts are the agent's parts, in order.
	Parts []Part `json:"parts,omitempty"`
}

// NodeWork is the running and waiting work of one kind, such as starts of pods.
type NodeWork struct {
	Kind    string `json:"kind"`
	Running int    `json:"running"`
	Limit   int    `json:"limit,omitempty"` // 0: none
	Waiting int    `json:"waiting,omitempty"`
}

// NodeFigure is a threshold and the last value of its signal. Amounts are quantities; "" is not
// known.
type NodeFigure struct {
	Signal     string `json:"signal"`
	Soft       bool   `json:"soft,omitempty"`
	Grace      string `json:"grace,omitempty"` // the grace period of a soft threshold
	Threshold  string `json:"threshold"`
	MinReclaim string `json:"minReclaim,omitempty"`
	Available  string `json:"available,omitempty"`
	Capacity   string `json:"capacity,omitempty"`
	// Stale is the age of the value, if the last reads failed.
	Stale string `json:"stale,omitempty"`
	// Met reports that the threshold is crossed, and Since the time at which it was crossed.
	// Acting reports that the agent is acting on it.
	Met    bool      `json:"met,omitempty"`
	Acting bool      `json:"acting,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// NodeDecision is an action on a threshold or a limit, and its reason.
type NodeDecision struct {
	Time time.Time `json:"time"`
	// Repeats is the number of later decisions with the same result.
	Repeats   int    `json:"repeats,omitempty"`
	What      string `json:"what"` // the signal or the limit
	Soft      bool   `json:"soft,omitempty"`
	Cause     string `json:"cause"` // what caused the check
	Available string `json:"available"`
	Threshold string `json:"threshold"`
	Need      string `json:"need"` // amount to free
	Outcome   string `json:"outcome"`
	Error     string `json:"error,omitempty"`
	// Lines lists what was removed, which pods were considered, and how evictions ended.
	Lines []string `json:"lines,omitempty"`
}

// NodeDescriber is an [Agent] that has its Node object. It sets the labels and the status.
type NodeDescriber interface {
	DescribeNode(ctx context.Context, into *v1.Node)
}

func (h *handler) node(w http.ResponseWriter, r *http.Request) {
	d, ok := h.agent.(NodeDescriber)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent does not describe its node: it does not implement local.NodeDescriber"))
		return
	}
	n := &v1.Node{TypeMeta: nodeType}
	if e, ok := h.agent.(NodeExplainer); ok {
		n.Name = e.WhyNode().Name
	}
	d.DescribeNode(r.Context(), n)
	reply(w, n)
}

// Node returns the Node object of a node without a cluster. If the agent serves the Kubernetes
// API, the result is the object of the API, with the changes of clients, such as
// spec.unschedulable.
func (c *Client) Node(ctx context.Context) (*v1.Node, error) {
	var l v1.NodeList
	if err := c.get(ctx, "/api/v1/nodes", &l); err == nil && len(l.Items) == 1 {
		l.Items[0].TypeMeta = nodeType
		return &l.Items[0], nil
	}
	var n v1.Node
	return &n, c.get(ctx, "/v1/node", &n)
}

// nodeType is the type of a Node object.
var nodeType = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}

func (h *handler) whyNode(w http.ResponseWriter, _ *http.Request) {
	n, ok := h.agent.(NodeExplainer)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent does not explain its node: it does not implement local.NodeExplainer"))
		return
	}
	reply(w, n.WhyNode())
}

// WhyNode returns the explanation of the node's state.
func (c *Client) WhyNode(ctx context.Context) (*NodeWhy, error) {
	var w NodeWhy
	return &w, c.get(ctx, "/v1/node/why", &w)
}

// Part is a part of the agent, with the names of its hooks.
type Part struct {
	Name  string   `json:"name"`
	Hooks []string `json:"hooks,omitempty"`
}
