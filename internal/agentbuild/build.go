// Package agentbuild builds the example agent as `make build` does: static and stripped.
package agentbuild

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the example agent into the file out. env are additional environment
// variables for the go command, such as GOARCH=arm64.
func Build(ctx context.Context, repository, out string, env ...string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", out, "./examples/agent")
	cmd.Dir, cmd.Env = repository, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./examples/agent: %w: %s", err, bytes.TrimSpace(msg))
	}
	return nil
}
