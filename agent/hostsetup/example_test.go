package hostsetup_test

import (
	"fmt"

	"github.com/nodewright/nodewright/agent/hostsetup"
)

// An agent that sets the kernel's parameters as the kubelet does, and leaves the firewall
// and its own OOM score alone. Nothing is changed before the part runs.
func ExampleNew() {
	p, err := hostsetup.New(hostsetup.Config{Kernel: hostsetup.Set})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Name())
	// Output: hostsetup
}
