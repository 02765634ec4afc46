package pleg_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

func ExampleManager_Events() {
	rt := newFake(false) // *cri.Reader for a real runtime
	rt.set("uid-of-web", observed.Running, observed.Container{ID: "c1", Name: "nginx", State: observed.Running})

	m, err := pleg.New(pleg.Config{Runtime: rt})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go m.Run(ctx)

	ev := <-m.Events()
	seen := m.View(ev.UID)
	fmt.Println(ev.Namespace, ev.Name, seen.Pod.Newest("nginx").State, seen.Runs(), seen.Err)
	for _, c := range ev.Changes {
		fmt.Printf("%s %s %q\n", c.Type, c.ID, c.Container)
	}
	// Output:
	// ns name-uid-of-web running yes <nil>
	// ContainerStarted c1 "nginx"
	// ContainerStarted uid-of-web-s ""
}
