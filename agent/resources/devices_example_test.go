package resources_test

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podspec"
)

// devicesBench is the little of an agent that the example needs: nothing runs on it.
type devicesBench struct{ part.Host }

func (devicesBench) RuntimePods() []observed.Listed { return nil }
func (devicesBench) Resync(types.UID) bool          { return true }
func (devicesBench) Readmit()                       {}

// What an agent does with the part, for one pod.
func Example_devices() {
	dir, err := os.MkdirTemp("", "devices")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manager, err := devicemgr.New(devicemgr.Config{Store: part.OpenStore(dir, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := resources.NewDevices(resources.DevicesConfig{Manager: manager})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Name(), p.Join(devicesBench{}))

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	fmt.Println("restored:", p.Restore(ctx))

	come := make(chan devicemgr.Change, 1)
	manager.Subscribe(func(c devicemgr.Change) { come <- c })
	for manager.Offer(ctx, thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...)) != nil { // until it runs
	}
	<-come

	pod := newDevicesPod("web", "main=1") // a limit of one example.com/thing
	fmt.Println("a plugin is to be asked:", p.Waits(pod))
	r, rejection := p.Reserve(ctx, part.Request{Pod: pod})
	fmt.Println("rejected:", rejection != nil)
	fmt.Println("committed:", r.Commit(ctx))

	var in podspec.Input
	err = p.Compile(pod, &in)
	fmt.Println(in.Attached["main"].CDI, err)
	fmt.Println("stopped:", p.Stopped(ctx, part.RefOf(pod)))
	fmt.Println("free:", p.Resources()[thing].Free)

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// devices <nil>
	// restored: <nil>
	// a plugin is to be asked: true
	// rejected: false
	// committed: <nil>
	// [example.com/thing=a] <nil>
	// stopped: <nil>
	// free: 2
	// ended: <nil>
}
