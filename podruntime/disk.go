package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/detached"
)

const (
	// fileTimeout is how long a step of a pod waits for a file system. A disk
	// answers in milliseconds, in seconds under load.
	fileTimeout = 5 * time.Second
	// maxHung is how many steps may wait for file systems that do not answer,
	// a goroutine and a thread each. One pod has no more of them than there are
	// places.
	maxHung = 512
	// maxLogNames is how many names in a directory of logs are looked at: the
	// kubelet keeps 5 files of a container (containerLogMaxFiles), but a pod
	// that mounts the directory can make any number.
	maxLogNames = 10_000
)

// place is where files of a pod are. Each place may be on a file system of its
// own that does not answer: at any moment each pod has at most one call in each.
type place string

const (
	inPodDir  place = "the pod's directory"
	inVolumes place = "the pod's volumes"
	inLogs    place = "the log directory"
)

// onDisk calls f when the pod's earlier call in that place has ended, and
// returns what it returns. If that has not come by fileTimeout, or ctx ends
// first, it returns an error; f may go on then, and so must share nothing that
// changes with the caller.
func onDisk[T any](ctx context.Context, d *detached.Queue, uid types.UID, in place, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("%s did not answer within %v", in, fileTimeout))
	defer cancel()
	return detached.Next(ctx, d, string(in)+"/"+string(uid), f)
}

// below returns the path of a file relative to the directory it is to be in.
func below(dir, path string) (string, error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || dir == "" || !filepath.IsLocal(rel) {
		return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("want a path below " + dir)}
	}
	return rel, nil
}
