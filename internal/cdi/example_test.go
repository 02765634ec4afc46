package cdi_test

import (
	"context"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/internal/cdi"
)

// A device that no specification has is an error, and the container's configuration
// stays as it was.
func Example() {
	registry, err := cdi.New(cdi.Config{Dirs: []string{"/nonexistent/cdi"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = registry.Inject(context.Background(), &specs.Spec{}, []string{"vendor.example/gpu=0"})
	fmt.Println(err != nil)
	// Output: true
}
