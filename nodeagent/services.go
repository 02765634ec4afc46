package nodeagent

import (
	"context"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/httpbound"
)

// Service makes a function that runs beside the agent, from before its start until after its end.
// It may use the Node from the beginning. If run is nil, there is no such service on this node.
// An error of run is logged; it ends the node only if it is [Vital].
type Service func(*Node) (name string, run func(context.Context) error, err error)

// Vital marks err as the error of a [Service] that the node cannot do without, so that Node.Run
// returns it. If err is nil, Vital returns nil.
func Vital(err error) error {
	if err == nil {
		return nil
	}
	return &vitalError{err}
}

type vitalError struct{ error }

func (e *vitalError) Unwrap() error { return e.error }

// service is a service that its maker has returned.
type service struct {
	name string
	run  func(context.Context) error
}

// StandardServices returns all services of this package.
func StandardServices() []Service { return []Service{LocalSocket, NodeAPI, Healthz, Systemd} }

// serve calls the makers of services. The cluster's service comes before the others.
func (n *Node) serve() error {
	if cl := n.builder.Cluster; cl != nil {
		n.services = append(n.services, service{name: "cluster", run: cl.Run})
	}
	for _, s := range n.options.Services {
		name, run, err := s(n)
		if err != nil {
			return err
		}
		if run != nil {
			n.services = append(n.services, service{name: name, run: run})
		}
	}
	return nil
}

// OnSocket adds a handler to LocalSocket, for all clients of the socket, below a
// pattern of http.ServeMux that package agent/local does not use. It is for makers
// of services, before Run. It needs no lock: services are made one after the other.
func (n *Node) OnSocket(pattern string, h http.Handler) {
	if n.onSocket == nil {
		n.onSocket = map[string]http.Handler{}
	}
	n.onSocket[pattern] = h
}

// OnPods adds a list of pods to those that LocalSocket shows: pods that are not placed on the node
// yet. Pods that the agent has are left out. It is for makers of services, before Run.
func (n *Node) OnPods(list func() []*v1.Pod) { n.onPods = append(n.onPods, list) }

// shown is a node with the pods of OnPods.
type shown struct{ *Node }

// Pods implements local.Agent.
func (s shown) Pods() []*v1.Pod {
	pods := s.Node.Pods()
	known := map[types.UID]bool{}
	for _, p := range pods {
		known[p.UID] = true
	}
	for _, list := range s.onPods {
		for _, p := range list() {
			if !known[p.UID] {
				known[p.UID] = true
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// LocalSocket serves package agent/local, and metrics, for people at the machine,
// at Settings.Socket.
func LocalSocket(n *Node) (name string, run func(context.Context) error, err error) {
	opened := make(chan struct{})
	n.opening = append(n.opening, opened)
	return "agent socket", func(ctx context.Context) error {
		select {
		case <-n.Ready(): // the lock of the root directory is this agent's
		case <-ctx.Done():
			return nil
		}
		n.answer(ctx, opened)
		return nil
	}, nil
}

// maxSocketConnections limits the concurrent connections at the socket.
const maxSocketConnections = 1024

// answer serves the socket and measures usage, until ctx ends. A failure is only logged: pods are
// more important. It closes the channel opened also after a failure, since Up must not wait for a
// socket that cannot be opened.
func (n *Node) answer(ctx context.Context, opened chan<- struct{}) {
	path := n.options.socket()
	l, err := local.Listen(path)
	close(opened)
	if err != nil {
		n.builder.Log.Error("failed to open agent socket", zap.Error(err))
		return
	}
	var metrics http.Handler
	if reg := n.options.Metrics; reg != nil {
		metrics = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	}
	// Collected only now: services made after LocalSocket may have added handlers.
	mux := http.NewServeMux()
	mux.Handle("/", local.Handler(shown{n}, metrics))
	for pattern, h := range n.onSocket {
		mux.Handle(pattern, h)
	}
	srv := httpbound.New(httpbound.Config{Handler: mux, Connections: maxSocketConnections, Log: n.builder.Log})
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	n.history.Run(ctx, n.totals)
	// Running requests are canceled, since the node ends.
	_ = srv.Close()
	<-served
	_ = os.Remove(path)
}
