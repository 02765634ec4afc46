package podcheck_test

import (
	"fmt"

	"github.com/nodewright/nodewright/internal/podcheck"
)

// A UID becomes the name of a directory: one that leads elsewhere is refused.
func ExampleUID() {
	fmt.Println(podcheck.UID("6f1c0c1e-9f5e-4c1e-8d8e-0e5b8c0a7d11"))
	fmt.Println(podcheck.UID("../../etc") != nil)
	// Output:
	// <nil>
	// true
}
