package dra_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/dra"
)

// coffee is a driver of this process: it has one machine.
type coffee struct{}

func (coffee) Prepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	out := map[types.UID]dra.Prepared{}
	for _, c := range list {
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "kitchen", Name: "m0", CDI: []string{"example.com/coffee=m0"}}}}
	}
	return out, nil
}

func (coffee) Unprepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range list {
		fmt.Println("unprepared:", c.Name)
		out[c.UID] = nil
	}
	return out, nil
}

func (coffee) Watch(context.Context, func([]dra.DeviceHealth)) error { return dra.ErrNoHealth }
func (coffee) Close() error                                          { return nil }

func ExampleManager() {
	known := &claims{} // of an API server; see the function claim
	known.put(claim("morning=coffee.example.com", "web"))
	m, err := dra.New(dra.Config{Store: &checkpointtest.Disk{}, Claims: known}) // a *checkpoint.Store keeps it
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.Restore(map[types.UID][]string{}); err != nil { // nothing runs
		fmt.Println(err)
		return
	}
	changed := make(chan dra.Change, 1)
	m.Subscribe(func(c dra.Change) { changed <- c })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()

	web := pod("web", "morning")
	<-m.Ready()
	var notYet *dra.NotYetError
	fmt.Println("wait:", errors.As(m.Prepare(ctx, web), &notYet))

	if err := m.Offer("coffee.example.com", "kitchen", coffee{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("changed:", (<-changed).Pods)
	fmt.Println("prepared:", m.Prepare(ctx, web))
	fmt.Println(m.Attachment(web, "main"))
	fmt.Println(m.Unprepare(ctx, web.UID))

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// wait: true
	// changed: [web]
	// prepared: <nil>
	// [example.com/coffee=m0] <nil>
	// unprepared: morning
	// <nil>
	// ended: <nil>
}
