package podmeta_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// The answers that a pod's own fields give, without a node.
func Example() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyOnFailure,
		Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
		}}, {Name: "side", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")},
		}}},
	}}
	requests := podmeta.Requests(pod)
	fmt.Println(podmeta.QOS(pod), requests.Cpu())
	fmt.Println(podmeta.RestartsAfter(pod, &pod.Spec.Containers[0], 0), podmeta.RestartsAfter(pod, &pod.Spec.Containers[0], 1))
	// Output:
	// Burstable 750m
	// false true
}

func ExampleExpand() {
	env := map[string]string{"COLOR": "blue"}
	out, unknown := podmeta.Expand("--color=$(COLOR) --size=$(SIZE) $$(COLOR)", func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	fmt.Println(out, unknown)
	// Output: --color=blue --size=$(SIZE) $(COLOR) [SIZE]
}
