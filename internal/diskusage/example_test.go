package diskusage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/diskusage"
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
	u, err := diskusage.Walk(context.Background(), dir, diskusage.Limits{})
	fmt.Println(u.InodesUsed, u.AtLeast, err)
	// Output: 3 false <nil>
}
