package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Files of containers on the disk: log directories of pods, and the directory of links to logs,
// which log collectors read. Both may be on a hung file system, and pods may be able to write to
// log directories. So every access has a timeout, and no link is followed that a pod may have
// created.

const (
	// linkSuffix is the suffix of links; other files in the directory are kept.
	linkSuffix  = ".log"
	maxFileName = 255 // bytes, of ext4 and most others (path_resolution(7))
)

// logDirOwner returns the pod's UID from the name of a log directory, <namespace>_<name>_<uid>.
// It returns false for other names; these directories are kept. The kubelet takes the text after
// the last underscore as the UID.
func logDirOwner(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}

// linkedID returns the container's ID from the name of a link,
// <pod>_<namespace>_<container>-<id>.log. whole is false if the name may have been cut to the
// maximum length of a file name; then the ID may be incomplete.
func linkedID(name string) (id string, whole bool) {
	id = strings.TrimSuffix(name, linkSuffix)
	return id[strings.LastIndexByte(id, '-')+1:], len(name) < maxFileName
}

// maxContainerNames limits the names that a pass reads in a directory. Pods that mount the
// directory can create any number.
const maxContainerNames = 50_000

// containerOnDisk calls f and waits for it for at most callTimeout, since the disk
// may hang. f may continue after containerOnDisk has returned, so f must not use anything that
// the caller changes. A later call with the same key waits until f has returned.
func containerOnDisk[T any](ctx context.Context, m *ContainerCollector, key string, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("the file system of %s did not answer within %v", key, callTimeout))
	defer cancel()
	return detached.Next(ctx, &m.disk, key, f)
}

// entries lists a directory, at most maxContainerNames names. A missing directory counts as
// empty.
func entries(dir string) ([]fs.DirEntry, error) {
	list, err := safefile.LinkedEntries(dir, maxContainerNames)
	// If there are too many, the others are read after some of these are removed.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrTooMany) {
		err = nil
	}
	return list, err
}

// logDirs lists the log directories of deleted pods. It is called before the containers are
// listed.
func (r *containerRound) logDirs(ctx context.Context) (map[types.UID][]string, error) {
	m := r.m
	// While every pod counts as live, no directory can be removed.
	if m.cfg.PodLogsDir == "" || r.situation.Pods == nil {
		return nil, nil
	}
	list, err := containerOnDisk(ctx, m, m.cfg.PodLogsDir, func() ([]fs.DirEntry, error) { return entries(m.cfg.PodLogsDir) })
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	out := map[types.UID][]string{}
	for _, e := range list {
		// Links are skipped: their targets belong to others.
		if uid, ok := logDirOwner(e.Name()); ok && e.IsDir() && r.situation.pod(uid) == Deleted {
			out[uid] = append(out[uid], filepath.Join(m.cfg.PodLogsDir, e.Name()))
		}
	}
	return out, nil
}

// removeDir removes a log directory with its content. Links in it are removed, not followed.
func (m *ContainerCollector) removeDir(ctx context.Context, path string) error {
	_, err := containerOnDisk(ctx, m, path, func() (struct{}, error) { return struct{}{}, os.RemoveAll(path) })
	return err
}

// dangling lists the links to missing logs. It is called before the containers are listed, so
// that containers with newer links are in the list.
func (m *ContainerCollector) dangling(ctx context.Context) ([]string, error) {
	if m.cfg.ContainerLogsDir == "" {
		return nil, nil
	}
	out, err := containerOnDisk(ctx, m, m.cfg.ContainerLogsDir, func() ([]string, error) {
		list, err := entries(m.cfg.ContainerLogsDir)
		var out []string
		var logs *safefile.Dir
		if m.cfg.PodLogsDir != "" && len(list) > 0 {
			// All links lead there, so it is opened once.
			if held, err := safefile.OpenDir(m.cfg.PodLogsDir, "."); err == nil {
				defer func() { _ = held.Close() }()
				logs = held
			}
		}
		for _, e := range list {
			if isLink(e) && m.dangles(logs, filepath.Join(m.cfg.ContainerLogsDir, e.Name())) {
				out = append(out, e.Name())
			}
		}
		return out, err
	})
	if err != nil {
		return nil, fmt.Errorf("list links to logs: %w", err)
	}
	return out, nil
}

// dangles reports whether a link leads to a missing log below PodLogsDir. It returns false for a
// link that cannot be read. logs is the opened PodLogsDir, or nil if there is none.
func (m *ContainerCollector) dangles(logs *safefile.Dir, link string) bool {
	target, err := os.Readlink(link)
	if err != nil || m.cfg.PodLogsDir != "" && !strings.HasPrefix(target, m.cfg.PodLogsDir+string(filepath.Separator)) {
		return false
	}
	return m.missing(logs, target)
}

// missing reports whether a log does not exist. Links below the directory of logs are not
// followed: a pod may have created them.
func (m *ContainerCollector) missing(logs *safefile.Dir, path string) bool {
	// Without that directory, the target itself is checked.
	root := m.cfg.PodLogsDir
	if root == "" {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	within, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(within) {
		return false
	}
	// The log is gone if the pod's directory is. After any other error the link stays.
	exists := func(name string) (bool, error) { return safefile.Exists(root, name) }
	if logs != nil {
		exists = logs.Exists
	}
	there, err := exists(within)
	return err == nil && !there
}

// removeLinks removes links whose container has ended or is unknown. The log of a running
// container is missing for a moment during a rotation.
func (m *ContainerCollector) removeLinks(ctx context.Context, names []string, containers []Container) (n int, err error) {
	// A container that is not listed was removed, so it reads as false.
	alive := make(map[string]bool, len(containers))
	for i := range containers {
		alive[containers[i].ID] = containers[i].State != observed.Exited
	}
	return containerOnDisk(ctx, m, m.cfg.ContainerLogsDir, func() (int, error) { return m.unlink(ctx, names, alive) })
}

// unlinkLogsOf removes the links to the logs of removed containers, by ID. It skips links with
// shortened names; sweep finds them.
func (r *containerRound) unlinkLogsOf(ctx context.Context, ids map[string]bool) error {
	m := r.m
	if m.cfg.ContainerLogsDir == "" || len(ids) == 0 {
		return nil
	}
	n, err := containerOnDisk(ctx, m, m.cfg.ContainerLogsDir, func() (int, error) {
		list, _ := entries(m.cfg.ContainerLogsDir) // sweep reports a directory that cannot be listed
		var names []string
		for _, e := range list {
			if id, whole := linkedID(e.Name()); whole && ids[id] && isLink(e) {
				names = append(names, e.Name())
			}
		}
		return m.unlink(ctx, names, nil)
	})
	r.removed.Add(int64(n))
	if err != nil {
		return fmt.Errorf("remove links to logs: %w", err)
	}
	return nil
}

// isLink reports whether a directory entry is a link to a log. Other files belong to other
// programs, such as a log collector.
func isLink(e fs.DirEntry) bool {
	return e.Type()&fs.ModeSymlink != 0 && strings.HasSuffix(e.Name(), linkSuffix)
}

// unlink removes links that still dangle and whose container is not alive, and returns their
// number. It may outlive its caller, so it checks ctx before each link. A rotation may have
// ended since the list.
func (m *ContainerCollector) unlink(ctx context.Context, names []string, alive map[string]bool) (n int, err error) {
	var errs []error
	for _, name := range names {
		link := filepath.Join(m.cfg.ContainerLogsDir, name)
		if id, whole := linkedID(name); ctx.Err() != nil || alive[id] || !whole && !m.dirGone(link) || !m.dangles(nil, link) {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a link to a log: %w", err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// dirGone reports whether the directory of a link's target is gone. It is for links with
// shortened names, whose container is unknown: no rotation brings such a log back.
func (m *ContainerCollector) dirGone(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && m.missing(nil, filepath.Dir(target))
}
