// Package agentbuild builds the example agent as `make build` does: static and stripped.
package agentbuild

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/safefile"
)

// monitors are where the examples take the monitor of their own container runtime
// from, below the repository's root.
var monitors = []string{
	filepath.Join("examples", "agent", "monitor", "nodewright-monitor.gz"),
	filepath.Join("examples", "edge", "monitor", "nodewright-monitor.gz"),
}

// maxMonitor is more than a monitor has, in bytes.
const maxMonitor = 64 << 20

// Build builds the monitor and the example agent that carries it, as the file out.
func Build(ctx context.Context, repository, out string) error {
	return BuildFor(ctx, repository, out)
}

// BuildFor is Build with more of an environment, such as GOARCH=arm64, each NAME=value.
func BuildFor(ctx context.Context, repository, out string, env ...string) error {
	env = append([]string{"CGO_ENABLED=0"}, env...)
	if err := placeMonitor(ctx, repository, env); err != nil {
		return err
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	return build(ctx, repository, env, []string{"-trimpath", "-ldflags=-s -w", "-o", out, "./examples/agent"})
}

// Monitor builds the monitor to where the builds of the examples find it. A file that
// would be the same is left alone.
func Monitor(ctx context.Context, repository string) error {
	return placeMonitor(ctx, repository, []string{"CGO_ENABLED=0"})
}

func placeMonitor(ctx context.Context, repository string, env []string) error {
	dir, err := os.MkdirTemp("", "monitor")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := filepath.Join(dir, "monitor")
	if err := build(ctx, repository, env, []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", built, "./localcri/monitor/cmd"}); err != nil {
		return err
	}
	program, err := safefile.ReadFile(built, maxMonitor)
	if err != nil {
		return err
	}
	packed, err := pack(program)
	if err != nil {
		return err
	}
	for _, m := range monitors {
		if err := put(filepath.Join(repository, m), packed); err != nil {
			return err
		}
	}
	return nil
}

func pack(program []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// put writes a file that is not there. Builds at the same time each put a whole one.
func put(place string, content []byte) error {
	if old, err := safefile.ReadFile(place, maxMonitor); err == nil && bytes.Equal(old, content) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(place), ".new*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Rename(f.Name(), place)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func build(ctx context.Context, dir string, env, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", args[len(args)-1], err, bytes.TrimSpace(msg))
	}
	return nil
}
