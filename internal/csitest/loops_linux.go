package csitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/internal/loopdev"
)

// diskSize is the size of a new disk in bytes. It is large enough for an ext4 file
// system without a journal.
const diskSize = 4 << 20

// Loops implements Disks with the kernel's loop devices and files in a directory.
// It needs root and e2fsprogs.
type Loops struct {
	dir string

	mu  sync.Mutex
	new []byte // content of a disk with a new ext4; nil before the first use
}

// NewLoops returns disks in a directory of the test, and frees their loop devices at the
// end of the test. If loop devices or mkfs.ext4 are not available, it skips the test.
// With CI=true it fails the test instead.
func NewLoops(t testing.TB) *Loops {
	t.Helper()
	l := &Loops{dir: t.TempDir()}
	t.Cleanup(func() {
		images, err := os.ReadDir(l.dir) //nolint:forbidigo // the test's own
		for _, image := range images {
			err = errors.Join(err, free(filepath.Join(l.dir, image.Name())))
		}
		if err != nil {
			t.Error(err)
		}
	})
	_, err := l.Attach(t.Context(), "try", "ext4")
	if err = errors.Join(err, l.Detach("try")); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs loop devices and mkfs.ext4, which CI=true requires: ", err)
		}
		t.Skip("needs loop devices and mkfs.ext4: ", err)
	}
	return l
}

// Image returns the path of a volume's file.
func (l *Loops) Image(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:8]))
}

// Attach implements Disks.
func (l *Loops) Attach(ctx context.Context, volume, fsType string) (string, error) {
	image := l.Image(volume)
	have, err := loopdev.Of(image)
	if err != nil || len(have) > 0 {
		return first(have), err
	}
	if _, err := os.Lstat(image); errors.Is(err, os.ErrNotExist) {
		content := make([]byte, diskSize)
		if fsType != "" {
			if content, err = l.formatted(ctx); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(image, content, 0o600); err != nil {
			return "", err
		}
	}
	return loopdev.Attach(image, false)
}

// formatted returns the content of a disk with a new ext4 file system.
func (l *Loops) formatted(ctx context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.new != nil {
		return l.new, nil
	}
	path := filepath.Join(l.dir, "new")
	if err := os.WriteFile(path, make([]byte, diskSize), 0o600); err != nil {
		return nil, err
	}
	err := program(ctx, "mkfs.ext4", "-q", "-F", "-O", "^has_journal,resize_inode", "-E", "resize=16384", path)
	if err == nil {
		l.new, err = os.ReadFile(path) //nolint:forbidigo // the test's own
	}
	return l.new, errors.Join(err, os.Remove(path))
}

// Grow implements Disks.
func (l *Loops) Grow(ctx context.Context, volume string, size int64) error {
	have, err := loopdev.Of(l.Image(volume))
	if err != nil || len(have) == 0 {
		return errors.Join(err, fmt.Errorf("volume %s has %d devices; want 1", volume, len(have)))
	}
	if err := errors.Join(os.Truncate(l.Image(volume), size), loopdev.Grow(have[0])); err != nil {
		return err
	}
	head, err := os.ReadFile(l.Image(volume)) //nolint:forbidigo // the test's own
	if err != nil || !bytes.Equal(head[1080:1082], []byte{0x53, 0xef}) {
		return err // no ext4 on the disk
	}
	return program(ctx, "resize2fs", have[0])
}

// Detach implements Disks.
func (l *Loops) Detach(volume string) error { return free(l.Image(volume)) }

func free(image string) error {
	have, err := loopdev.Of(image)
	for _, device := range have {
		err = errors.Join(err, loopdev.Free(device))
	}
	return err
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func program(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.1024s", name, err, out)
	}
	return nil
}
