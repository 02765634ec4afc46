package pressure_test

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// evictionAgent is what the part asks of its agent; agent.New makes a real one.
type evictionAgent struct {
	part.Host
	pods  []*v1.Pod
	ended chan string
}

func (a *evictionAgent) ActivePods() []*v1.Pod                                    { return a.pods }
func (a *evictionAgent) Event(*v1.Pod, map[string]string, string, string, string) {}
func (a *evictionAgent) NodeEvent(string, string, string)                         {}
func (a *evictionAgent) Readmit()                                                 {}
func (a *evictionAgent) Housekeep()                                               {}
func (a *evictionAgent) Worker(types.UID) (podworker.Status, bool)                { return podworker.Status{}, false }
func (a *evictionAgent) End(_ context.Context, pod *v1.Pod, why podlife.Cause) error {
	st := v1.PodStatus{Phase: v1.PodRunning}
	why.Apply(&st)
	a.ended <- fmt.Sprintf("%s: %s %s", pod.Name, st.Phase, st.Reason)
	return nil
}

// A node that runs out of memory ends the pod that uses more than it asked for.
func Example() {
	thresholds, err := rank.Parse(rank.Text{Hard: map[string]string{"memory.available": "100Mi"}})
	if err != nil {
		panic(err)
	}
	stats := &figures{free: 50, pods: map[types.UID]int64{"uid-web": 200, "uid-batch": 300}} // evictionAgent/stats reads a node's
	p, err := pressure.NewEviction(pressure.EvictionConfig{Stats: stats, Thresholds: thresholds})
	if err != nil {
		panic(err)
	}
	a := &evictionAgent{pods: []*v1.Pod{newEvictionPod("web", "250Mi"), newEvictionPod("batch", "10Mi")}, ended: make(chan string, 1)}
	if err := p.Join(a); err != nil { // evictionAgent.New does
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }() // Agent.Run does
	fmt.Println(<-a.ended)
	memory := slices.IndexFunc(p.Pressure(), func(c v1.NodeCondition) bool { return c.Status == v1.ConditionTrue })
	fmt.Println(p.Pressure()[memory].Type, p.Admit(newEvictionPod("late", ""), nil).Reason)
	cancel()
	fmt.Println(<-done)
	// Output:
	// batch: Failed Evicted
	// MemoryPressure Evicted
	// <nil>
}
