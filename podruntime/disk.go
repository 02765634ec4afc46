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
	// fileTimeout is how long a call for a pod waits for a file system. A disk answers in
	// milliseconds, or in seconds under load.
	fileTimeout = 5 * time.Second
	// maxHung is how many calls of all pods may wait for file systems that do not answer. Each takes
	// a goroutine and a thread. One pod has at most one call for each place.
	maxHung = 512
	// maxLogNames is how many names of a log directory are read. The kubelet keeps 5 files of a
	// container (containerLogMaxFiles), but a pod that mounts the directory can make any number.
	maxLogNames = 10_000
)

// place is a kind of directory with files of pods. Each place may be on a file system of its own
// that does not answer. So a pod has at most one call in each place at a time.
type place string

const (
	inPodDir  place = "the pod's directory"
	inVolumes place = "the pod's volumes"
	inLogs    place = "the log directory"
)

// onDisk waits until the pod's earlier call in the same place has ended, calls f, and returns f's
// results. If f has not returned within fileTimeout, or before ctx ends, onDisk returns an error.
// f then continues, so it must not use data that the caller changes.
func onDisk[T any](ctx context.Context, d *detached.Queue, uid types.UID, in place, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("%s did not answer within %v", in, fileTimeout))
	defer cancel()
	return detached.Next(ctx, d, string(in)+"/"+string(uid), f)
}

// below returns path relative to dir. It returns an error if path is not below dir.
func below(dir, path string) (string, error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || dir == "" || !filepath.IsLocal(rel) {
		return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("want a path below " + dir)}
	}
	return rel, nil
}
