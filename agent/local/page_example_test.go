package local_test

import (
	"context"
	"fmt"
	"net"

	"github.com/nodewright/nodewright/agent/local"
)

// A page about the agent behind a socket, for whoever knows the token.
func ExamplePage_Serve() {
	page, err := local.NewPage(local.PageConfig{Agent: local.NewClient("/var/lib/edge/agent.sock")})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program serves until a signal comes
	fmt.Println(page.Serve(ctx, l, "a long secret of your own"))
	// Output: <nil>
}
