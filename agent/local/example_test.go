package local_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/agent/local"
)

// A program at the machine asks the agent why a pod does not run.
func ExampleClient_Why() {
	client := local.NewClient("/var/lib/nodewright/agent.sock")
	why, err := client.Why(context.Background(), "default", "web")
	if err != nil {
		fmt.Println("the agent does not answer:", err)
		return
	}
	fmt.Println(why.Stage, "waits for", why.WaitingFor)
}
