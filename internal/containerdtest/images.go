package containerdtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Import imports an image archive and waits until CRI lists all images: containerd
// tells its CRI plugin about an import by an event, which may arrive later.
func (c *Containerd) Import(ctx context.Context, archive string) error {
	if c.local() {
		return c.importLocal(ctx, archive)
	}
	if _, err := c.ctr(ctx, "images", "import", "--local", archive); err != nil {
		return fmt.Errorf("import %s: %w", archive, err)
	}
	names, err := c.ctr(ctx, "images", "ls", "-q")
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	service := runtimeapi.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for name := range strings.FieldsSeq(names) {
		if strings.HasPrefix(name, "sha256:") {
			continue // the CRI plugin's additional entry with the image ID
		}
		for {
			s, err := service.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
			if err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
			if s.GetImage() != nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("image %s is imported, but CRI does not list it", name)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

// ctr runs containerd's client ctr and returns its standard output.
func (c *Containerd) ctr(ctx context.Context, args ...string) (string, error) {
	program, err := findProgram(c.opts.BinDir, "ctr")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, program, append([]string{"-a", c.Socket, "-n", "k8s.io"}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
