package eviction_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

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
		Kill: func(ctx context.Context, pod *v1.Pod, grace int64, status func(*v1.PodStatus)) error {
			defer func() { ended <- pod.Name }()
			return n.kill(ctx, pod, grace, status)
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
	fmt.Println(m.Admit(&v1.Pod{}).Reason, m.Taints()[0].Key)
	// Output:
	// batch was evicted
	// batch: 400 of 100 MiB, chosen
	// web: 550 of 600 MiB, within its request
	// Evicted node.kubernetes.io/memory-pressure
}
