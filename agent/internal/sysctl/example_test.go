package sysctl_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/agent/internal/sysctl"
)

// What differs from the parameters that a node should have. On a machine dir is
// sysctl.Sys.
func ExampleCheck() {
	dir, err := os.MkdirTemp("", "sys")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_ = os.MkdirAll(filepath.Join(dir, "vm"), 0o700)
	_ = os.WriteFile(filepath.Join(dir, "vm", "overcommit_memory"), []byte("1\n"), 0o600)
	want := []sysctl.Tunable{{Name: "vm/overcommit_memory", Want: 1}}
	fmt.Println(sysctl.Check(dir, want))
	want[0].Want = 2
	fmt.Println(sysctl.Check(dir, want) != nil, sysctl.Set(dir, want), sysctl.Check(dir, want))
	// Output:
	// <nil>
	// true <nil> <nil>
}
