package shutdown_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node/shutdown"
)

// What would happen if the machine went down now.
func ExamplePlan() {
	pods := []*v1.Pod{pod("dns", shutdown.SystemCritical, 60), pod("web", 0, 60), pod("batch", -100, 5)}
	for _, step := range shutdown.Plan(shutdown.Split(30*time.Second, 10*time.Second), pods) {
		for _, k := range step.Kills {
			fmt.Printf("priority %d and above, %v: %s has %d s\n", step.Group.Priority, step.Group.Time, k.Pod.Name, k.Grace)
		}
	}
	// Output:
	// priority 0 and above, 20s: web has 20 s
	// priority 0 and above, 20s: batch has 5 s
	// priority 2000000000 and above, 10s: dns has 10 s
}
