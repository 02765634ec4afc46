package eviction_test

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/eviction"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/eviction/threshold"
)

// agent is what the part asks of its agent; agent.New makes a real one.
type agent struct {
	part.Host
	pods  []*v1.Pod
	ended chan string
}

func (a *agent) ActivePods() []*v1.Pod                                    { return a.pods }
func (a *agent) Event(*v1.Pod, map[string]string, string, string, string) {}
func (a *agent) NodeEvent(string, string, string)                         {}
func (a *agent) Readmit()                                                 {}
func (a *agent) Housekeep()                                               {}
func (a *agent) End(_ context.Context, pod *v1.Pod, how part.End) error {
	st := v1.PodStatus{Phase: v1.PodRunning}
	how.Status(&st)
	a.ended <- fmt.Sprintf("%s: %s %s", pod.Name, st.Phase, st.Reason)
	return nil
}

// A node that runs out of memory ends the pod that uses more than it asked for.
func Example() {
	thresholds, err := threshold.Parse(threshold.Text{Hard: map[string]string{"memory.available": "100Mi"}})
	if err != nil {
		panic(err)
	}
	stats := &figures{free: 50, pods: map[types.UID]int64{"uid-web": 200, "uid-batch": 300}} // agent/stats reads a node's
	p, err := eviction.New(eviction.Config{Stats: stats, Thresholds: thresholds})
	if err != nil {
		panic(err)
	}
	a := &agent{pods: []*v1.Pod{newPod("web", "250Mi"), newPod("batch", "10Mi")}, ended: make(chan string, 1)}
	if err := p.Join(a); err != nil { // agent.New does
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }() // Agent.Run does
	fmt.Println(<-a.ended)
	memory := slices.IndexFunc(p.Pressure(), func(c v1.NodeCondition) bool { return c.Status == v1.ConditionTrue })
	fmt.Println(p.Pressure()[memory].Type, p.Admit(newPod("late", ""), nil).Reason)
	cancel()
	fmt.Println(<-done)
	// Output:
	// batch: Failed Evicted
	// MemoryPressure Evicted
	// <nil>
}
