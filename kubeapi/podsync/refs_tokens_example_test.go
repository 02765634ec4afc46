package podsync_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
)

// A pod's token is there after a restart, though nobody answers any more.
func ExampleTokenKeeper() {
	ctx, disk, server := context.Background(), &checkpointtest.Disk{}, &issuer{} // a checkpoint.Store, and a Requester
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, down := range []error{nil, errAway} {
		server.err = down
		key, err := seal.Machine(filepath.Join(dir, "secret.key"), nil)
		if err != nil {
			log.Panic(err)
		}
		k, err := podsync.NewTokenKeeper(podsync.TokenKeeperConfig{Requester: server, Memory: disk, Seal: key})
		if err != nil {
			log.Panic(err)
		}
		token, err := k.Token(ctx, "default", "web", of("pod-uid"))
		fmt.Println(token.Value, err)
	}
	// Output:
	// default/web/pod-uid#1 <nil>
	// default/web/pod-uid#1 <nil>
}
