package main

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/nodewright/nodewright/localcri"
)

// monitors has the monitor's program, if it was built before the agent.
//
//go:embed all:monitor
var monitors embed.FS

// localRuntime is how the agent's own container runtime is made.
func localRuntime(f *runFlags) localcri.InProcessConfig {
	return localcri.InProcessConfig{ReadProgram: monitorProgram, Network: f.network, PreloadDir: f.preload}
}

// monitorProgram is nil if the agent was built without it.
func monitorProgram() ([]byte, error) {
	program, err := monitors.ReadFile("monitor/nodewright-monitor.gz")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return program, err
}
