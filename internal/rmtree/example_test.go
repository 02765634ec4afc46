package rmtree_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/rmtree"
)

// A tree goes without following links and without crossing a mount point.
func ExampleRemove() {
	dir, err := os.MkdirTemp("", "rmtree")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tree := filepath.Join(dir, "volume")
	_ = os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700)
	_ = os.Symlink("/etc", filepath.Join(tree, "link"))
	fmt.Println(rmtree.Remove(tree))
	_, err = os.Stat("/etc")
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}
