package fit

import (
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// A Tally says of any list of pods what an addition says, whatever it was asked before.
func TestTally(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*v1.Pod
	for i := range 20 {
		all = append(all, &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceName("example.com/" + strconv.Itoa(i%3)): *resource.NewQuantity(int64(i), resource.DecimalSI), v1.ResourceCPU: resource.MustParse("100m"),
		}}}}}})
	}
	tally := &Tally{}
	var list []*v1.Pod
	for step := range 500 {
		switch r.IntN(4) {
		case 0:
			list = nil
		case 1:
			if len(list) > 0 {
				i := r.IntN(len(list))
				list = append(append([]*v1.Pod(nil), list[:i]...), list[i+1:]...)
			}
		default:
			list = append(list, all[r.IntN(len(all))])
		}
		want := v1.ResourceList{}
		for _, p := range list {
			for name, q := range podmeta.Requests(p) {
				sum := want[name]
				sum.Add(q)
				want[name] = sum
			}
		}
		got := tally.of(list)
		if len(got) != len(want) {
			t.Fatalf("step %d: %v, want %v", step, got, want)
		}
		for name, q := range want {
			if have := got[name]; have.Cmp(q) != 0 {
				t.Fatalf("step %d: %s is %v, want %v", step, name, have.String(), q.String())
			}
		}
	}
}
