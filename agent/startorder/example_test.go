package startorder_test

import (
	"fmt"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/startorder"
)

// An agent whose pods begin in the order that their annotations ask for.
func ExampleNew() {
	order, err := startorder.New(startorder.Config{})
	if err != nil {
		panic(err)
	}
	cfg := agent.Config{Parts: []part.Part{order}} // and a node, a runtime, sources
	fmt.Println(cfg.Parts[0].Name(), startorder.AnnotationAfter)
	// Output: startorder nodewright.io/after
}
