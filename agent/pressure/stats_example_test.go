package pressure_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
)

// statsNode is the agent that has the part; agent.New makes a real one. Nothing is
// asked of it as long as the runtime has no pods.
type statsNode struct{ part.Host }

// The part among those of an agent, asked for what the node uses.
func Example_stats() {
	rt := critest.New()
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	p, err := pressure.NewStats(pressure.StatsConfig{
		NodeName: "edge-1", Runtime: rt, Images: rt, PodsCgroup: pressure.NoCgroup, RootDir: root,
	})
	if err != nil {
		panic(err)
	}
	if err := p.Join(statsNode{}); err != nil { // agent.New does
		panic(err)
	}
	s, err := p.CPUAndMemory(context.Background())
	fmt.Println(s.Node.NodeName, s.Node.Memory != nil, len(s.Pods), err)
	// Output: edge-1 true 0 <nil>
}
