package node_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/node"
)

// Two agents never share a root directory.
func ExampleLockRoot() {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	lock, err := node.LockRoot(dir)
	if err != nil {
		panic(err)
	}
	_, err = node.LockRoot(dir)
	fmt.Println(errors.Is(err, node.ErrLocked))
	lock.Release()
	again, err := node.LockRoot(dir)
	fmt.Println(err)
	again.Release()
	// Output:
	// true
	// <nil>
}
