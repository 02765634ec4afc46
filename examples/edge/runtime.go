package main

import (
	"context"
	"errors"
	"path/filepath"

	"go.uber.org/zap"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/localcri"
)

// containerRuntime is the container runtime of the agent.
type containerRuntime struct {
	criapi.RuntimeService
	images  criapi.ImageManagerService
	runWith func(context.Context, func(context.Context) error) error // calls a function while the runtime runs
}

// openRuntime connects to the runtime at endpoint. If endpoint is "", it starts a
// runtime in this process, with files below the directory root and images from the
// archives in the directory preload.
func openRuntime(ctx context.Context, endpoint, root, preload string, log *zap.Logger) (*containerRuntime, error) {
	if endpoint != "" {
		client, err := cri.New(cri.Config{Endpoint: endpoint, Log: log})
		if err != nil {
			return nil, err
		}
		return &containerRuntime{client, client, func(ctx context.Context, run func(context.Context) error) error {
			return errors.Join(run(ctx), client.Close(context.WithoutCancel(ctx)))
		}}, nil
	}
	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: filepath.Join(root, "localcri"), PreloadDir: preload, Log: log})
	if err != nil {
		return nil, err
	}
	return &containerRuntime{rt.Runtime(), rt.Images(), rt.RunWith}, nil
}
