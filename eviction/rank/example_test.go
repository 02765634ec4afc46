package rank_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/eviction/rank"
)

func ExampleSort() {
	pod := func(name, memory string, priority int32) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			Priority: &priority,
			Containers: []v1.Container{{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)},
			}}},
		}}
	}
	order := rank.Sort(rank.Rules{}, rank.SignalMemory, []rank.Candidate{
		{Pod: pod("batch", "1Gi", 0), Usage: &rank.Usage{Memory: 900 << 20}},
		{Pod: pod("web", "512Mi", 1000), Usage: &rank.Usage{Memory: 700 << 20}},
		{Pod: pod("cache", "64Mi", 1000), Usage: &rank.Usage{Memory: 600 << 20}},
	})
	for _, r := range order {
		fmt.Printf("%-5s %4d of %4d MiB, priority %d\n", r.Pod.Name, r.Used>>20, r.Request>>20, r.Priority)
	}
	// Output:
	// cache  600 of   64 MiB, priority 1000
	// web    700 of  512 MiB, priority 1000
	// batch  900 of 1024 MiB, priority 0
}
