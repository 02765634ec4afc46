package logind_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/node/logind"
)

// A machine that goes down waits for half a minute while pods end.
func ExampleMachine_Watch() {
	l := logind.New(logind.Config{Who: "agent"})
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
