package observed_test

import (
	"fmt"

	"github.com/nodewright/nodewright/cri/observed"
)

// On a node of IPv6 a pod's IPv6 address comes first.
func ExampleAddresses() {
	ips, dropped := observed.Addresses([]string{"10.0.0.7", "fd00::7", "0.0.0.0"}, "fd00::1")
	fmt.Println(ips, dropped)
	// Output: [fd00::7 10.0.0.7] [0.0.0.0]
}
