package eviction_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
)

// A device for caches is a signal of one's own: what is left of it, and what each pod has there.
func ExampleSignal() {
	pods := []*v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "small", UID: "1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "large", UID: "2"}},
	}
	cached := map[types.UID]int64{"1": 20, "2": 75} // GB of 100
	ended := make(chan string, 1)
	m, err := eviction.New(eviction.Config{
		Stats: newNode(), Pods: func() []*v1.Pod { return pods },
		Kill: func(_ context.Context, pod *v1.Pod, _ podlife.Cause) error {
			ended <- pod.Name
			return nil
		},
		Thresholds: []rank.Threshold{{Signal: "cache.available", Value: rank.Amount{Fraction: 0.1}}},
		Signals: []eviction.Signal{{
			Name: "cache.available", Condition: "CachePressure",
			Read: func(context.Context) (rank.Observation, error) {
				return rank.Observation{Available: 5, Capacity: 100, Time: time.Now()}, nil
			},
			Usage: func(context.Context, []*v1.Pod) (map[types.UID]int64, error) { return cached, nil },
		}},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	fmt.Println(<-ended, "was evicted")
	cancel()
	<-done
	fmt.Println(m.UnderPressure("CachePressure"), m.Decisions()[0].Considered[0].Used)
	// Output:
	// large was evicted
	// true 75
}

func ExampleManager() {
	n := newNode() // Stats that read a real one, in an agent
	n.add("web", 1000, 600, 550)
	n.add("batch", 0, 100, 400)

	thresholds, err := rank.Parse(rank.Text{Hard: map[string]string{"memory.available": "100Mi"}})
	if err != nil {
		panic(err)
	}
	ended := make(chan string, 1)
	m, err := eviction.New(eviction.Config{
		Stats: n, Pods: n.list, Thresholds: thresholds,
		Kill: func(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
			defer func() { ended <- pod.Name }()
			return n.kill(ctx, pod, why)
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	fmt.Println(<-ended, "was evicted")
	cancel()
	<-done

	for _, c := range m.Decisions()[0].Considered {
		fmt.Printf("%s: %d of %d MiB, %s\n", c.Pod.Name, c.Used/mi, c.Request/mi, c.Verdict)
	}
	fmt.Println(m.Admit(&v1.Pod{}).Reason)
	// Output:
	// batch was evicted
	// batch: 400 of 100 MiB, chosen
	// web: 550 of 600 MiB, within its request
	// Evicted
}
