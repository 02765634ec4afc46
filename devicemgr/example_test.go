package devicemgr_test

import (
	"context"
	"fmt"
	"os/exec"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
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

// runIt is a launcher of containers that are plain processes: of what devices
// bring, such a one can have the environment. One that makes containers would
// put a.Nodes and a.Mounts into them, or hand a.CDI to its runtime.
func runIt(a devicemgr.Attachment, command ...string) (output string, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	for _, e := range a.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, err := cmd.Output()
	return string(out), err
}

// The devices of plugins in one's own containers, without an agent.
func ExampleManager() {
	m, err := devicemgr.New(devicemgr.Config{Store: &checkpointtest.Disk{}}) // a *checkpoint.Store keeps it
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
	for m.Offer(ctx, "example.com/coffee", coffee{}) != nil { // until Run runs
	}
	fmt.Println("changed:", (<-changed).Resources)
	fmt.Println("admitted:", m.Admit(ctx, web))
	a, err := m.Attachment(web, "main") // an error: do not start it
	if err == nil {
		err = m.PreStart(ctx, web, "main")
	}
	fmt.Println("may start:", err)
	out, err := runIt(a, "sh", "-c", "echo coffee from the $MACHINE")
	fmt.Print(out)
	m.Release(web.UID) // it has ended
	fmt.Println("free:", m.Capacity()["example.com/coffee"].Free, err)

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// changed: [example.com/coffee]
	// admitted: <nil>
	// may start: <nil>
	// coffee from the kitchen
	// free: 2 <nil>
	// ended: <nil>
}
