package crilog_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/cri/crilog"
)

// The last lines of a container's log file, without the runtime.
func ExampleCopy() {
	dir, err := os.MkdirTemp("", "crilog")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "0.log")
	if err := os.WriteFile(file, []byte("2030-01-02T03:04:05Z stdout F one\n2030-01-02T03:04:06Z stderr P tw\n2030-01-02T03:04:06Z stderr F o\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	if err := crilog.Copy(context.Background(), os.Stdout, file, crilog.Options{Tail: -1}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// one
	// two
}
