package fsgroup_test

import (
	"fmt"
	"io/fs"

	"github.com/nodewright/nodewright/internal/fsgroup"
)

// What a file and a directory come to have.
func ExampleRequest_Mode() {
	r := fsgroup.Request{GID: 2000}
	fmt.Println(r.Mode(0o600), r.Mode(fs.ModeDir|0o700))
	r.ReadOnly = true
	fmt.Println(r.Mode(0o600), r.Mode(fs.ModeDir|0o700))
	// Output:
	// -rw-rw---- dgrwxrwx---
	// -rw-r----- dgrwxr-x---
}
