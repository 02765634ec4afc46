package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/agent/internal/kernel"
)

// What differs from the parameters that a node should have. On a machine dir is
// kernel.Sys.
func ExampleCheck() {
	dir, err := os.MkdirTemp("", "sys")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_ = os.MkdirAll(filepath.Join(dir, "vm"), 0o700)
	_ = os.WriteFile(filepath.Join(dir, "vm", "overcommit_memory"), []byte("1\n"), 0o600)
	want := []kernel.Tunable{{Name: "vm/overcommit_memory", Want: 1}}
	fmt.Println(kernel.Check(dir, want))
	want[0].Want = 2
	fmt.Println(kernel.Check(dir, want) != nil, kernel.Set(dir, want), kernel.Check(dir, want))
	// Output:
	// <nil>
	// true <nil> <nil>
}
