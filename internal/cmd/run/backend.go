package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

// Container runtimes that pods can be run on.
const (
	localcri   = "localcri"
	containerd = "containerd"
)

// backend is a container runtime with the sample images.
type backend struct {
	endpoint string   // for crictl; "" if the runtime has none
	args     []string // more arguments of the agent
	clear    func() error
}

// startContainerd starts a containerd that only this command uses.
func startContainerd(ctx context.Context, p paths) (*backend, error) {
	say("starting containerd in %s", p.rel(p.containerd))
	c, err := containerdtest.Start(ctx, containerdtest.Options{Dir: p.containerd, BinDir: p.bin, Repository: p.repository, Logf: say})
	if err != nil {
		return nil, err
	}
	endpoint := "unix://" + c.Socket
	return &backend{endpoint, []string{"--container-runtime-endpoint", endpoint}, func() error {
		say("removing pods and containerd")
		return c.Stop()
	}}, nil
}

// prepareLocal builds the images that the agent loads at its start. It removes the
// containers and files of an earlier run that was killed.
func prepareLocal(ctx context.Context, p paths) (*backend, error) {
	archives, err := sampleimage.Build(ctx, p.repository, filepath.Join(p.repository, "build", "images"))
	if err != nil {
		return nil, err
	}
	images := filepath.Join(p.run, "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return nil, err
	}
	for _, a := range archives {
		link := filepath.Join(images, filepath.Base(a))
		if err := os.Link(a, link); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	if _, err := os.Stat(p.agentRoot); err == nil {
		if err := reset(ctx, p); err != nil {
			return nil, err
		}
	}
	return &backend{"", []string{"--container-runtime-endpoint", localcri, "--preload-images", images}, func() error {
		say("removing pods")
		return reset(context.WithoutCancel(ctx), p)
	}}, nil
}

// reset stops all containers of the agent's own runtime, and removes the runtime's files.
func reset(ctx context.Context, p paths) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "agent"), "reset", "--images", "--root-dir", p.agentRoot)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("agent reset: %w: %s", errors.Join(err, ctx.Err()), bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
