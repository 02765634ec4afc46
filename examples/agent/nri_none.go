//go:build !nri

package main

import (
	"errors"

	"go.uber.org/zap"

	runtime "github.com/nodewright/nodewright/localcri"
)

// hooks returns an error if --nri-socket is set: plugins of the Node Resource Interface are only linked
// with the build tag nri.
func (f *runFlags) hooks(*zap.Logger) (runtime.Hooks, error) {
	if f.nriSocket != "" {
		return nil, errors.New("--nri-socket: this agent was built without NRI; want a build with -tags nri")
	}
	return nil, nil
}
