package lifecycle_test

import (
	"fmt"

	"github.com/nodewright/nodewright/agent/lifecycle"
)

// An agent that sets the kernel's parameters as the kubelet does, and leaves the firewall
// and its own OOM score alone. Nothing is changed before the part runs.
func ExampleNewHostSetup() {
	p, err := lifecycle.NewHostSetup(lifecycle.HostSetupConfig{Kernel: lifecycle.Set})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Name())
	// Output: hostsetup
}
