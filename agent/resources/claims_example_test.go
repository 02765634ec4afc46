package resources_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podspec"
)

// bench is the little of an agent that the example needs: one pod, and one claim
// that it names.
type bench struct {
	part.Host
	pod   *v1.Pod
	claim *resourceapi.ResourceClaim
}

func (b bench) RuntimePods() []observed.Listed { return nil }
func (b bench) Pods() []*v1.Pod                { return []*v1.Pod{b.pod} }
func (b bench) Resync(types.UID) bool          { return true }

func (b bench) ResourceClaims(string) map[string]*resourceapi.ResourceClaim {
	return map[string]*resourceapi.ResourceClaim{b.claim.Name: b.claim}
}

// What an agent does with the part, for one pod.
func Example() {
	dir, err := os.MkdirTemp("", "claims")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	known := &resources.ClaimLookup{}
	manager, err := dra.New(dra.Config{Claims: known, Store: part.OpenStore(dir, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := resources.NewClaims(resources.ClaimsConfig{Manager: manager, Lookup: known})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := newPod("web", "a")
	fmt.Println(p.Name(), p.Join(bench{pod: pod, claim: newClaim("a")}))

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	fmt.Println("restored:", p.Restore(ctx))
	<-p.Ready()
	fmt.Println("a driver came:", manager.Offer(gpu, "1", devicetest.NewDriver()))

	fmt.Println("prepared:", p.Prepare(ctx, pod, nil))
	var in podspec.Input
	err = p.Compile(pod, &in)
	fmt.Println(in.Attached["main"].CDI, err)
	fmt.Println("stopped:", p.Stopped(ctx, part.RefOf(pod)))

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// claims <nil>
	// restored: <nil>
	// a driver came: <nil>
	// prepared: <nil>
	// [v/c=a] <nil>
	// stopped: <nil>
	// ended: <nil>
}
