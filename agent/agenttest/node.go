package agenttest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
)

// Image is the name of an image that every node has.
const Image = "localhost/app:1"

// A Node is a machine: a runtime and directories, which outlive the agents that run on it one after
// another. Its methods may be called only from the test's goroutine.
type Node struct {
	// Runtime runs the pods.
	Runtime *critest.Runtime
	// Config is the configuration of the next agent. The test may change it. It has the runtime,
	// Source and Sink, directories below the test's own, 2 CPUs, 4 GiB and 110 pods, and no parts.
	Config agent.Config
	// Source has the pods that the node should run.
	Source *Source
	// Sink records the statuses of pods.
	Sink *Sink
	// Timeout limits the wait for a condition. The default is 1 minute.
	Timeout time.Duration

	t      testing.TB
	agent  *agent.Agent
	cancel context.CancelFunc
	ended  chan error
}

// New returns a node without a running agent. At the end of the test, a running agent is stopped.
func New(t testing.TB) *Node {
	rt := critest.New()
	rt.AddImage(Image)
	dir := t.TempDir()
	n := &Node{t: t, Runtime: rt, Source: NewSource("test", podmgr.Static), Sink: &Sink{}, Timeout: time.Minute}
	n.Config = agent.Config{
		Node: node.Machine{Name: "node", IPs: []string{"192.0.2.1"}, Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
		Paths:   agent.Paths{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "logs")},
		Runtime: rt, Images: agent.Images{Service: rt}, DNS: agent.DNS{ResolvConf: "-"},
		Sources: []podmgr.Source{n.Source}, Status: agent.Status{Sink: n.Sink},
	}
	t.Cleanup(n.Stop)
	return n
}

// Start starts an agent and waits until it is ready. If an agent runs already, the test fails.
func (n *Node) Start() *agent.Agent {
	n.t.Helper()
	if n.agent != nil {
		n.t.Fatal("agenttest: an agent runs on this node already; Stop it first")
	}
	a, err := agent.New(n.Config)
	if err != nil {
		n.t.Fatalf("agenttest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.agent, n.cancel, n.ended = a, cancel, make(chan error, 1)
	go func(ended chan<- error) { ended <- a.Run(ctx) }(n.ended)
	select {
	case <-a.Ready():
	case err := <-n.ended:
		cancel()
		n.agent = nil
		n.t.Fatalf("agenttest: the agent ended at its start: %v", err)
	}
	return a
}

// Stop ends the agent, as SIGTERM does: containers keep running, and the next agent adopts them.
// If the agent ends with an error, the test fails. If no agent runs, Stop does nothing.
func (n *Node) Stop() {
	n.t.Helper()
	if n.agent == nil {
		return
	}
	n.cancel()
	n.agent = nil
	if err := <-n.ended; err != nil {
		n.t.Errorf("agenttest: the agent ended: %v", err)
	}
}

// Restart stops the agent and starts the next one on the same machine.
func (n *Node) Restart() *agent.Agent {
	n.t.Helper()
	n.Stop()
	return n.Start()
}

// Want sets the pods that the node should run. Other pods are terminated and removed.
func (n *Node) Want(pods ...*v1.Pod) { n.Source.Set(podmgr.Snapshot{Pods: pods}) }
