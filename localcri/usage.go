//go:build linux

package localcri

import (
	"context"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/portforward"
	"github.com/nodewright/nodewright/localcri/internal/usage"
)

func newUsage(cfg Config) (usageReader, portForwarder, error) {
	r, err := usage.New(usage.Config{Mountpoint: cfg.RootDir})
	if err != nil {
		return nil, nil, err
	}
	return realUsage{r}, realForwarder{}, nil
}

type realUsage struct{ *usage.Reader }

func (u realUsage) Container(ctx context.Context, of usageOf) (*runtimeapi.ContainerStats, error) {
	return u.Reader.Container(ctx, of.Cgroup, of.Writable)
}

type realForwarder struct{}

func (realForwarder) Forward(ctx context.Context, netns string, port int32, rw io.ReadWriteCloser) error {
	return portforward.Forward(ctx, netns, port, rw)
}
