package usage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/volumemgr/usage"
)

// The usage of a directory, by a walk with bounds.
func ExampleWalk() {
	dir, err := os.MkdirTemp("", "usage")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	u, err := usage.Walk(context.Background(), dir, usage.Limits{})
	fmt.Println(u.InodesUsed, u.AtLeast, err)
	// Output: 3 false <nil>
}
