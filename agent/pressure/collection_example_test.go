package pressure_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/gc"
)

// agent is what the part asks of its agent; agent.New makes a real one.
type agent struct {
	part.Host
	part.Garbage
	pods []*v1.Pod
}

func (a agent) Pods() []*v1.Pod                     { return a.pods }
func (a agent) Phase(types.UID) (v1.PodPhase, bool) { return "", false }
func (a agent) KnownTerminated(types.UID) bool      { return false }

// What would become of each image of a node whose disk is to be emptied.
func ExampleCollection_Images() {
	rt := critest.New()
	rt.AddImage("localhost/web:2", "localhost/web:1")
	rt.SetImageFS(os.TempDir())
	p, err := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt, Images: rt, ImagePolicy: &gc.ImagePolicy{}})
	if err != nil {
		panic(err)
	}
	if err := p.Join(agent{pods: []*v1.Pod{newPod("web", "localhost/web:2")}}); err != nil { // agent.New does
		panic(err)
	}
	images, err := p.Images(context.Background())
	for _, i := range images.Images {
		fmt.Println(i.Name, i.Verdict, i.Goes)
	}
	fmt.Println(err)
	// Output:
	// localhost/web:1 removable true
	// localhost/web:2 desired false
	// <nil>
}
