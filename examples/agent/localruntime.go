package main

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/nodewright/nodewright/localcri/inprocess"
)

// monitors has the monitor's program, if it was built before the agent.
//
//go:embed all:monitor
var monitors embed.FS

// localRuntime is how the agent's own container runtime is made.
func localRuntime(f *runFlags) (inprocess.Config, error) {
	program, err := monitors.ReadFile("monitor/nodewright-monitor.gz")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return inprocess.Config{}, err
	}
	return inprocess.Config{Program: program, Network: f.network, PreloadDir: f.preload}, nil
}
