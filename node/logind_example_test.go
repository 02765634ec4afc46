package node_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/node"
)

// A machine that goes down waits for half a minute while pods end.
func ExampleLogind_Watch() {
	l := node.NewLogind(node.LogindConfig{Who: "agent"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := l.Watch(ctx, 30*time.Second, func(down bool) {
		if down {
			fmt.Println("end the pods")
			l.Release() // when they have ended
		}
	})
	fmt.Println(err)
}
