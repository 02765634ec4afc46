package lifecycle_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/agent/lifecycle"
)

// An agent that measures how long its pods take to start, by the kubelet's metrics. Its
// source of pods shows the statuses that were published.
func ExampleNewPodStarts() {
	p, err := lifecycle.NewPodStarts(lifecycle.PodStartsConfig{Metrics: prometheus.NewRegistry(), Echoed: true})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Name())
	// Output: podstart
}
