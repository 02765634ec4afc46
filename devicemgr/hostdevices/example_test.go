//go:build linux

package hostdevices_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/devicemgr/hostdevices"
)

// A device manager that offers a device node of this machine, without an agent.
func Example() {
	settings, err := hostdevices.Parse([]byte(`
devices:
- resource: example.com/nothing
  paths: [/dev/null]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := devicemgr.New(devicemgr.Config{Store: forgetful{}}) // a *checkpoint.Store keeps it
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := hostdevices.New(hostdevices.Config{Settings: settings, Offer: m.Offer})
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
	ended := make(chan error, 2)
	go func() { ended <- m.Run(ctx) }()
	go func() { ended <- p.Run(ctx) }()
	fmt.Println("changed:", (<-changed).Resources)
	for _, d := range m.Devices()["example.com/nothing"] {
		fmt.Println("device:", d.ID)
	}
	cancel()
	fmt.Println("ended:", errors.Join(<-ended, <-ended))
	// Output:
	// changed: [example.com/nothing]
	// device: null
	// ended: <nil>
}

// forgetful is a store that keeps nothing.
type forgetful struct{}

func (forgetful) Write(string, []byte) error  { return nil }
func (forgetful) Read(string) ([]byte, error) { return nil, fs.ErrNotExist }
func (forgetful) Delete(string) error         { return nil }
func (forgetful) Keys() ([]string, error)     { return nil, nil }
