package serve_test

import (
	"context"

	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/serve"
)

// A runtime in a program's own process is served over a socket, for crictl and the like.
func ExampleNew() {
	serveOn := func(ctx context.Context, rt criapi.RuntimeService, images criapi.ImageManagerService, streams localcri.Streams) error {
		s, err := serve.New(serve.Config{Socket: "/run/agent/cri.sock", Runtime: rt, Images: images, Streams: streams})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	_ = serveOn
}
