package notify_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/eviction/notify"
)

// A kernel that runs short of memory is heard of at once, and not at the next look.
func ExampleNew() {
	src := notify.New(
		notify.PSI("/proc/pressure/memory", 0, 0),
		notify.Events("/sys/fs/cgroup/kubepods/memory.events"),
	)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := src.Run(ctx, func(cause string) { fmt.Println("memory is short:", cause) }); err != nil {
		fmt.Println(err)
	}
}
