package pluginmgr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nodewright/nodewright/pluginmgr"
)

// printer uses plugins by telling of them.
type printer struct{}

func (printer) Validate(name, _ string, versions []string) error {
	if !slices.Contains(versions, "v1") {
		return errors.New("want v1")
	}
	return nil
}

func (printer) Register(_ context.Context, name, endpoint string, _ []string) error {
	fmt.Println("use", name, "at", endpoint)
	return nil
}

func (printer) Deregister(name, _ string) { fmt.Println("forget", name) }

func ExampleManager() {
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	m, err := pluginmgr.New(pluginmgr.Config{
		Dir:      dir,
		Handlers: map[string][]pluginmgr.Handler{pluginmgr.DRAPlugin: {printer{}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(m.Run(ctx), len(m.Plugins()))
	// Output: <nil> 0
}
