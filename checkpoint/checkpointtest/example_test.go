package checkpointtest_test

import (
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

func ExampleDisk() {
	disk := &checkpointtest.Disk{}
	fmt.Println(disk.Write("pod-123", []byte("a")))
	disk.Fault(checkpointtest.Fail(errors.New("no space left on device"), "write"))
	fmt.Println(disk.Write("pod-123", []byte("b")))
	value, err := disk.Read("pod-123")
	fmt.Println(string(value), err, disk.Count("write"))
	// Output:
	// <nil>
	// no space left on device
	// a <nil> 1
}
