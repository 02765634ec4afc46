package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// host is what the part asks of its agent; agent.New makes a real one.
type host struct {
	part.Host
	settled chan struct{}
	pods    []*v1.Pod
}

func (a host) Settled() <-chan struct{}                  { return a.settled }
func (a host) ActivePods() []*v1.Pod                     { return a.pods }
func (a host) RuntimePods() []observed.Listed            { return nil }
func (a host) Worker(types.UID) (podworker.Status, bool) { return podworker.Status{}, false }
func (a host) NodeEvent(_, reason, message string)       { fmt.Println(reason+":", message) }
func (a host) Housekeep()                                {}
func (a host) End(_ context.Context, pod *v1.Pod, why podlife.Cause) error {
	fmt.Println(pod.Name, "has", *why.Grace, "s to end")
	return nil
}

// A node whose agent gets a SIGTERM when the machine goes down.
func Example_shutdown() {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	p, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{
		Requested: 30 * time.Second, Critical: 10 * time.Second, // for the pods of the system
		Machine: shutdown.OnSignal(signals, func() { close(done) }),
	})
	if err != nil {
		panic(err)
	}
	a := host{settled: make(chan struct{}), pods: []*v1.Pod{newPod("web")}}
	close(a.settled)
	if err := p.Join(a); err != nil { // host.New does
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }() // Agent.Run does
	signals <- syscall.SIGTERM
	<-done
	fmt.Println(p.ShuttingDown())
	fmt.Println(p.Admit(newPod("late"), nil))
	cancel()
	fmt.Println(<-ended)
	// Unordered output:
	// Shutdown: Shutdown manager detected shutdown event
	// web has 5 s to end
	// node is shutting down
	// NodeShutdown: Pod was rejected as the node is shutting down.
	// <nil>
}
