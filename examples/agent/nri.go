//go:build nri

// With the build tag nri the agent's own container runtime runs plugins of the Node Resource Interface.

package main

import (
	"fmt"

	"go.uber.org/zap"

	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/nri"
)

// hooks returns the plugins that connect to --nri-socket, or nil without the flag.
func (f *runFlags) hooks(log *zap.Logger) (runtime.Hooks, error) {
	if f.nriSocket == "" {
		return nil, nil
	}
	p, err := nri.New(nri.Config{Socket: f.nriSocket, Version: versionString(), Log: log.Named("nri")})
	if err != nil {
		return nil, fmt.Errorf("--nri-socket: %w", err)
	}
	return p, nil
}
