package machine_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/agent/machine"
)

// Two agents never share a root directory.
func ExampleLockRoot() {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	lock, err := machine.LockRoot(dir)
	if err != nil {
		panic(err)
	}
	_, err = machine.LockRoot(dir)
	fmt.Println(errors.Is(err, machine.ErrLocked))
	lock.Release()
	again, err := machine.LockRoot(dir)
	fmt.Println(err)
	again.Release()
	// Output:
	// true
	// <nil>
}
