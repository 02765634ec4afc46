package tokenrequest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nodewright/nodewright/kubeapi/tokenrequest"
)

// A pod's token is there after a restart, though nobody answers any more.
func ExampleKeeper() {
	ctx, disk, server := context.Background(), newDisk(), &issuer{} // a checkpoint.Store, and a Requester
	for _, down := range []error{nil, errAway} {
		server.err = down
		k, err := tokenrequest.NewKeeper(tokenrequest.KeeperConfig{Requester: server, Memory: disk})
		if err != nil {
			log.Fatal(err)
		}
		token, err := k.Token(ctx, "default", "web", of("pod-uid"))
		fmt.Println(token.Value, err)
	}
	// Output:
	// default/web/pod-uid#1 <nil>
	// default/web/pod-uid#1 <nil>
}
