package main

import (
	"context"
	"path/filepath"

	"go.uber.org/zap"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/localcri"
)

// containerRuntime is what runs containers.
type containerRuntime struct {
	criapi.RuntimeService
	images criapi.ImageManagerService
	run    func(context.Context) error // begins before the agent, and ends after it
}

// openRuntime returns the runtime at an endpoint, or without one that of this process,
// which has its files below root and images of the archives in preload.
func openRuntime(ctx context.Context, endpoint, root, preload string, log *zap.Logger) (*containerRuntime, error) {
	if endpoint != "" {
		client, err := cri.New(cri.Config{Endpoint: endpoint, Log: log})
		if err != nil {
			return nil, err
		}
		return &containerRuntime{client, client, func(ctx context.Context) error {
			<-ctx.Done()
			return client.Close(context.WithoutCancel(ctx))
		}}, nil
	}
	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: filepath.Join(root, "localcri"), PreloadDir: preload, Log: log})
	if err != nil {
		return nil, err
	}
	return &containerRuntime{rt.Runtime(), rt.Images(), rt.Run}, nil
}

// runOn runs the agent on the runtime. The end of either is the end of both.
func (r *containerRuntime) runOn(ctx context.Context, a *agent.Agent) error {
	ctx, endAgent := context.WithCancel(ctx)
	defer endAgent()
	running, endRuntime := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer endAgent()
		ended <- r.run(running)
	}()
	err := a.Run(ctx)
	endRuntime()
	if rerr := <-ended; rerr != nil {
		return rerr
	}
	return err
}
