package lifecycle_test

import (
	"fmt"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
)

// An agent whose pods begin in the order that their annotations ask for.
func ExampleNewStartOrder() {
	order, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{})
	if err != nil {
		panic(err)
	}
	cfg := agent.Config{Parts: []part.Part{order}} // and a node, a runtime, sources
	fmt.Println(cfg.Parts[0].Name(), lifecycle.AnnotationAfter)
	// Output: startorder nodewright.io/after
}
