package devicemgr_test

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
)

// coffee is a plugin of this process: two machines.
type coffee struct{}

func (coffee) Options(context.Context) (devicemgr.Options, error) { return devicemgr.Options{}, nil }

func (coffee) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	list([]devicemgr.Device{{ID: "kitchen", Healthy: true}, {ID: "lobby", Healthy: true}})
	<-ctx.Done()
	return ctx.Err()
}

func (coffee) Allocate(_ context.Context, ids []string) (devicemgr.Attachment, error) {
	return devicemgr.Attachment{Env: []v1.EnvVar{{Name: "MACHINE", Value: ids[0]}}}, nil
}

func (coffee) Prefer(context.Context, []string, []string, int) ([]string, error) { return nil, nil }
func (coffee) PreStart(context.Context, []string) error                          { return nil }
func (coffee) Close() error                                                      { return nil }

func ExampleManager() {
	m, err := devicemgr.New(devicemgr.Config{Store: newMemory()}) // a *checkpoint.Store keeps it
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.Restore(map[types.UID][]string{}); err != nil { // nothing runs
		fmt.Println(err)
		return
	}
	changed := make(chan devicemgr.Change, 1)
	m.Subscribe(func(c devicemgr.Change) { changed <- c })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()

	// Pods ask for a limit of example.com/coffee; see the function pod.
	web := pod("web", "main=1@example.com/coffee")
	_ = m.Expect("example.com/coffee")
	var notYet *devicemgr.NotYetError
	fmt.Println("wait:", errors.As(m.Admit(ctx, web), &notYet))

	for m.Offer(ctx, "example.com/coffee", coffee{}) != nil { // until Run runs
	}
	fmt.Println("changed:", (<-changed).Resources)
	fmt.Println("admitted:", m.Admit(ctx, web))
	a, err := m.Attachment(web, "main")
	fmt.Println(a.Env[0].Name, a.Env[0].Value, err)

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// wait: true
	// changed: [example.com/coffee]
	// admitted: <nil>
	// MACHINE kitchen <nil>
	// ended: <nil>
}
