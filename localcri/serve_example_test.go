package localcri_test

import (
	"context"

	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/localcri"
)

// A runtime in a program's own process is served over a socket, for crictl and the like.
func ExampleNewServer() {
	serveOn := func(ctx context.Context, rt criapi.RuntimeService, images criapi.ImageManagerService, streams localcri.Streams) error {
		s, err := localcri.NewServer(localcri.ServerConfig{Socket: "/run/agent/cri.sock", Runtime: rt, Images: images, Streams: streams})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	_ = serveOn
}
