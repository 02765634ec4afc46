//go:build linux

package localcri

import (
	"context"
	"io"

	"github.com/nodewright/nodewright/localcri/internal/portforward"
	"github.com/nodewright/nodewright/localcri/internal/usage"
)

func newUsage(cfg Config) (usageReader, portForwarder, error) {
	r, err := usage.New(usage.Config{Mountpoint: cfg.RootDir})
	if err != nil {
		return nil, nil, err
	}
	return r, realForwarder{}, nil
}

type realForwarder struct{}

func (realForwarder) Forward(ctx context.Context, netns string, port int32, rw io.ReadWriteCloser) error {
	return portforward.Forward(ctx, netns, port, rw)
}
