package preempt_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/preempt"
)

// A critical pod lacks half a CPU: the pod that costs the least ends for it.
func ExampleChoose() {
	asks := func(name, cpu string, priority int32) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}}}
	}
	critical := asks("dns", "1", 2000000000)
	others := []*v1.Pod{asks("big", "2", 0), asks("small", "500m", 0), asks("tiny", "100m", 0)}
	victims, err := preempt.Choose(critical, others, v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}, preempt.Critical)
	for _, v := range victims {
		fmt.Println(v.Name)
	}
	fmt.Println(err)
	// Output:
	// small
	// <nil>
}
