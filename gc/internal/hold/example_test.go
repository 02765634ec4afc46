package hold_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// A collector gets nothing that somebody is about to use.
func Example() {
	var table hold.Table[string]
	h := table.Open()
	if _, err := h.Add(context.Background(), "registry/app:1"); err != nil {
		fmt.Println(err)
		return
	}
	pass := table.Begin()
	_, ok := pass.Take("registry/app:1")
	fmt.Println("taken while held:", ok)
	pass.End()

	h.Release()
	pass = table.Begin()
	defer pass.End()
	done, ok := pass.Take("registry/app:1")
	fmt.Println("taken afterwards:", ok)
	if ok {
		done()
	}
	// Output:
	// taken while held: false
	// taken afterwards: true
}
