package podmeta_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// A plain pod needs no feature that a node has to declare.
func ExampleFeaturesOf() {
	fmt.Println(podmeta.FeaturesOf(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}))
	// Output: []
}
