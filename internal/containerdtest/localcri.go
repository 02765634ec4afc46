package containerdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nodewright/nodewright/internal/testprogram"
)

// The values of Options.Runtime.
const (
	ContainerdName = "containerd"
	LocalCRI       = "localcri" // internal/cmd/localcri, in place of containerd
)

// Name returns the environment variable RUNTIME, or ContainerdName if RUNTIME is not set.
func Name() string {
	if name := os.Getenv("RUNTIME"); name != "" {
		return name
	}
	return ContainerdName
}

// sockets maps a runtime to the path of its CRI socket below Dir.
var sockets = map[string]string{ContainerdName: "containerd.sock", LocalCRI: "root/cri.sock"}

// localPrograms are the programs that LocalCRI needs, in addition to the go
// command.
var localPrograms = []string{"runc"}

// Local reports whether tests use LocalCRI in place of containerd.
func Local() bool { return Name() == LocalCRI }

func (c *Containerd) local() bool { return c.opts.Runtime == LocalCRI }

// marker returns a path that is in the runtime's command line and in no other program's.
func (c *Containerd) marker() string {
	if c.local() {
		return filepath.Join(c.Dir, "root")
	}
	return filepath.Join(c.Dir, "config.toml")
}

// configure writes the configuration of containerd. For LocalCRI it compiles the program and
// creates its directories.
func (c *Containerd) configure(ctx context.Context) error {
	if !c.local() {
		return writeConfig(c.opts)
	}
	if err := testprogram.Compile(ctx, c.opts.Repository, localProgram(c.opts.Repository), "./internal/cmd/localcri"); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(c.marker(), 0o711), os.MkdirAll(filepath.Join(c.Dir, "cdi"), 0o711))
}

// program returns the program of the runtime and its arguments.
func (c *Containerd) program() (string, []string, error) {
	if !c.local() {
		program, err := findProgram(c.opts.BinDir, "containerd")
		return program, []string{"-c", c.marker()}, err
	}
	runc, err := findProgram(c.opts.BinDir, "runc")
	if err != nil {
		return "", nil, err
	}
	args := []string{"-dir", c.marker(), "-runc", runc, "-subnet", c.Subnet, "-cdi", filepath.Join(c.Dir, "cdi")}
	for registry, url := range c.opts.Mirrors {
		args = append(args, "-mirror", registry+"="+url)
	}
	return localProgram(c.opts.Repository), args, nil
}

func localProgram(repository string) string {
	return filepath.Join(repository, "build", "localcri", "localcri")
}

// importLocal sends an image archive to the import socket of LocalCRI.
func (c *Containerd) importLocal(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.marker(), "import.sock"))
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localcri/", f)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("import %s: %w", archive, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("import %s: %s: %s", archive, res.Status, bytes.TrimSpace(why))
	}
	return nil
}

// resetLocal runs LocalCRI with -reset, which removes everything that LocalCRI has
// created.
func (c *Containerd) resetLocal() error {
	program, args, err := c.program()
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		return nil // not compiled, so it has never run
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, append(args, "-reset")...).CombinedOutput(); err != nil {
		return fmt.Errorf("reset localcri: %w: %s", err, tail(out))
	}
	return nil
}

// tail returns the last 4096 bytes of b.
func tail(b []byte) []byte { return bytes.TrimSpace(b[max(0, len(b)-4096):]) }
