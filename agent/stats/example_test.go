package stats_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/stats"
	"github.com/nodewright/nodewright/cri/critest"
)

// node is the agent that has the part; agent.New makes a real one. Nothing is
// asked of it as long as the runtime has no pods.
type node struct{ part.Host }

// The part among those of an agent, asked for what the node uses.
func Example() {
	rt := critest.New()
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	p, err := stats.New(stats.Config{
		NodeName: "edge-1", Runtime: rt, Images: rt, PodsCgroup: stats.NoCgroup, RootDir: root,
	})
	if err != nil {
		panic(err)
	}
	if err := p.Join(node{}); err != nil { // agent.New does
		panic(err)
	}
	s, err := p.CPUAndMemory(context.Background())
	fmt.Println(s.Node.NodeName, s.Node.Memory != nil, len(s.Pods), err)
	// Output: edge-1 true 0 <nil>
}
