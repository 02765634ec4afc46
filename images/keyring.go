package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Keyring knows credentials for images, beside those in the pods' secrets. Its
// methods are called from any goroutine.
type Keyring interface {
	// Credentials returns those for an image, the most particular first. An
	// error comes beside what could be had; the pull goes on with that.
	Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error)
}

// credentialsOf asks a keyring, for a pod if it knows of pods. What comes of a
// Keyring without pods is the node's: it has neither secret nor account.
func credentialsOf(ctx context.Context, k Keyring, image string, pod *v1.Pod) (out []credential, err error) {
	pods, ok := k.(PodKeyring)
	if !ok {
		list, err := k.Credentials(ctx, image)
		for _, auth := range list {
			out = append(out, credential{auth: auth})
		}
		return out, err
	}
	// The stand-in for no pod is not shown to others.
	if pod == nobody {
		pod = nil
	}
	list, err := pods.PodCredentials(ctx, image, pod)
	for _, c := range list {
		out = append(out, credential{auth: c.Auth, account: c.Account})
	}
	return out, err
}

const (
	// maxConfig is how large a docker configuration file may be, in bytes: that of
	// a secret, which the API server limits (MaxSecretSize).
	maxConfig = 1 << 20
	// configTimeout is how long a pull waits for the file's disk.
	configTimeout = 5 * time.Second
)

// File is a Keyring that reads a docker configuration file of the node. It is
// read again when it has changed; one that is not there is empty. One of more
// than 1 MiB, that is no regular file or that does not come within 5 seconds is
// an error. It is safe for use from any goroutine.
type File struct {
	path string
	// read lets one goroutine at a time wait for the disk, however many pulls ask.
	read detached.Group[credentialFile]

	// mu guards last.
	mu   sync.Mutex
	last credentialFile
}

// credentialFile is what was read. Modification time and size say whether the
// file has changed; nobody has to signal it.
type credentialFile struct {
	modified time.Time
	size     int64
	all      []credential
	err      error // of the content
}

// NewFile returns the keyring of a config.json.
func NewFile(path string) *File { return &File{path: path} }

// Credentials implements Keyring. Content that cannot be understood is an error
// at each call, and read again only when it changes. A disk that hangs, as that
// of a network file system may, costs a pull no more than five seconds.
func (f *File) Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, configTimeout, fmt.Errorf("image credentials: %s: its disk did not answer within %v", f.path, configTimeout))
	defer cancel()
	c, err := f.read.Do(ctx, "", f.load)
	if err != nil {
		return nil, err
	}
	return auths(choose(image, c.all)), c.err
}

// load reads the file if it has changed. It is run by one goroutine at a time,
// which no ctx ends.
func (f *File) load() (credentialFile, error) {
	fi, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.keep(credentialFile{}), nil
	}
	if err != nil {
		return credentialFile{}, err
	}
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	if fi.ModTime().Equal(last.modified) && fi.Size() == last.size {
		return last, nil
	}
	// Following links: such files are often mounted from a secret, where they are
	// links.
	b, err := safefile.ReadLinked(f.path, maxConfig)
	if err != nil {
		f.keep(credentialFile{}) // the next call tries again
		return credentialFile{}, err
	}
	c := credentialFile{modified: fi.ModTime(), size: fi.Size()}
	if c.all, err = parseDockerConfig(f.path, b); err != nil {
		c.err = fmt.Errorf("image credentials: %w", err)
	}
	return f.keep(c), nil
}

// keep remembers c and returns it.
func (f *File) keep(c credentialFile) credentialFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = c
	return c
}
