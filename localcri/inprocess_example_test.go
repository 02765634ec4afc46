package localcri_test

import (
	"context"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/localcri"
)

// An agent that is its own container runtime: it needs runc or crun, and nothing else.
func ExampleNewInProcess() {
	ctx := context.Background()
	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: "/var/lib/edge/localcri", PreloadDir: "/usr/share/edge/images"})
	if err != nil {
		panic(err)
	}
	go func() { _ = rt.Run(ctx) }() // begins before the agent, and ends after it
	cfg := agent.Config{Runtime: rt.Runtime(), Images: agent.Images{Service: rt.Images()}}
	_ = cfg
}
