package pressure_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodewright/nodewright/agent/pressure"
)

func requests(name, cpu string, priority int32) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: ptr.To(priority), Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}

// A critical pod that lacks a CPU has the pod end for it that fits best.
func ExamplePreemption_Victims() {
	p, err := pressure.NewPreemption(pressure.PreemptionConfig{})
	if err != nil {
		panic(err)
	}
	others := []*v1.Pod{requests("batch", "1", 0), requests("web", "2", 1000)}
	missing := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for _, v := range p.Victims(requests("critical", "1", 2_000_000_000), others, missing) {
		fmt.Println(v.Name)
	}
	// Output: batch
}
