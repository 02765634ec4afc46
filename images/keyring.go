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

// Keyring provides credentials for images, in addition to the pods' secrets. Its methods are
// called from any goroutine.
type Keyring interface {
	// Credentials returns the credentials for an image, the most specific first. It may return
	// an error together with some credentials; the pull uses these.
	Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error)
}

// credentialsOf returns the credentials of the keyring k for an image. If k is a PodKeyring, they
// are those of the pod. Credentials of other keyrings belong to the node: they have neither
// secret nor account.
func credentialsOf(ctx context.Context, k Keyring, image string, pod *v1.Pod) (out []credential, err error) {
	pods, ok := k.(PodKeyring)
	if !ok {
		list, err := k.Credentials(ctx, image)
		for _, auth := range list {
			out = append(out, credential{auth: auth})
		}
		return out, err
	}
	// A keyring gets nil, not the placeholder.
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
	// maxConfig limits a docker configuration file, in bytes. The API server has the same limit
	// for Secrets (MaxSecretSize).
	maxConfig = 1 << 20
	// configTimeout limits the time that a pull waits for the file.
	configTimeout = 5 * time.Second
)

// File is a Keyring that reads a docker configuration file of the node. It reads the file again
// after a change. A missing file counts as empty. It is an error if the file is larger than 1
// MiB, not a regular file, or not read within 5 seconds. It is safe for concurrent use.
type File struct {
	path string
	// read is the current read of the file, which concurrent pulls share.
	read detached.Group[credentialFile]

	// mu guards last.
	mu   sync.Mutex
	last credentialFile
}

// credentialFile is the decoded file. Its modification time and size detect changes.
type credentialFile struct {
	modified time.Time
	size     int64
	all      []credential
	err      error // error of the content
}

// NewFile returns a keyring for a docker config.json.
func NewFile(path string) *File { return &File{path: path} }

// Credentials implements Keyring. Invalid content is an error of each call until the file
// changes. A hung disk delays a call by at most 5 seconds.
func (f *File) Credentials(ctx context.Context, image string) ([]*runtimeapi.AuthConfig, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, configTimeout, fmt.Errorf("image credentials: %s: its disk did not answer within %v", f.path, configTimeout))
	defer cancel()
	c, err := f.read.Do(ctx, "", f.load)
	if err != nil {
		return nil, err
	}
	return auths(choose(image, c.all)), c.err
}

// load reads the file if it has changed. Calls do not overlap, and no ctx cancels them.
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
	// Symbolic links are followed, since a file that is mounted from a Secret is one.
	b, err := safefile.ReadLinked(f.path, maxConfig)
	if err != nil {
		f.keep(credentialFile{}) // the next call tries again
		return credentialFile{}, err
	}
	c := credentialFile{modified: fi.ModTime(), size: fi.Size()}
	if c.all, err = parseDockerConfig(f.path, b); err != nil {
		c.err = fmt.Errorf("parse image credentials: %w", err)
	}
	return f.keep(c), nil
}

// keep stores c in f.last and returns it.
func (f *File) keep(c credentialFile) credentialFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = c
	return c
}
