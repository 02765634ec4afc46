package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring knows credentials for images, beside those in the pods' secrets. Its
// methods are called from any goroutine.
type Keyring interface {
	// Credentials returns those for an image, the most particular first. An
	// error comes beside what could be had; the pull goes on with that.
	Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error)
}

// File is a Keyring that reads a docker configuration file of the node. It is
// read again when it has changed; one that is not there is empty.
type File struct {
	path string

	mu       sync.Mutex
	modified time.Time
	size     int64
	all      []credential
	err      error
}

// NewFile returns the keyring of a config.json.
func NewFile(path string) *File { return &File{path: path} }

// Credentials implements Keyring.
func (f *File) Credentials(_ context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fi, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.modified, f.size, f.all, f.err = time.Time{}, 0, nil, nil
		return nil, nil
	case err != nil:
		return nil, err
	case !fi.ModTime().Equal(f.modified) || fi.Size() != f.size:
		f.modified, f.size = fi.ModTime(), fi.Size()
		f.all, f.err = nil, nil
		b, err := os.ReadFile(f.path)
		if err != nil {
			f.modified = time.Time{} // the next call tries again
			return nil, err
		}
		if f.all, err = parseDockerConfig(f.path, b); err != nil {
			f.err = fmt.Errorf("image credentials: %w", err)
		}
	}
	return auths(choose(image, f.all)), f.err
}
