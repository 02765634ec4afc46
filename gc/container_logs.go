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

// What containers leave on the disk: the log directories of pods, and the links to logs in
// one directory for all, which log collectors read. Both may be on a file system that does
// not answer, and pods may be able to write below the first: nothing here waits for ever or
// follows a link that a pod may have made.

const (
	// linkSuffix ends the names of links, and of nothing else that is removed there.
	linkSuffix  = ".log"
	maxFileName = 255 // bytes, of ext4 and most others (path_resolution(7))
)

// logDirOwner reads whose a directory of logs is: <namespace>_<name>_<uid>. Neither names
// nor UIDs have an underscore; what is named otherwise is not ours to remove. The kubelet
// takes whatever is behind the last underscore for a UID.
func logDirOwner(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}

// linkedID reads the container's ID from the name of a link to its log,
// <pod>_<namespace>_<container>-<id>.log. Names of containers may have hyphens, IDs have
// none. whole is false if the name may have been cut to be a file's, mostly at the cost of
// the ID.
func linkedID(name string) (id string, whole bool) {
	id = strings.TrimSuffix(name, linkSuffix)
	return id[strings.LastIndexByte(id, '-')+1:], len(name) < maxFileName
}

// maxContainerNames is how many names in a directory are looked at in a pass: more than
// there are pods and containers on a node, with those that are gone. Pods that
// mount the directory can make any number.
const maxContainerNames = 50_000

// containerOnDisk calls f, and waits for it no longer than ContainerConfig.Timeout: the disk may not answer. f
// then goes on alone, so it must share nothing that the caller changes. A later call with
// the same key waits for its end, so that no two of them work on one path.
func containerOnDisk[T any](ctx context.Context, m *ContainerCollector, key string, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.Timeout, fmt.Errorf("the file system of %s did not answer within %v", key, m.cfg.Timeout))
	defer cancel()
	return detached.Next(ctx, &m.disk, key, f)
}

// entries lists a directory; of more than logrotate.maxNames names as many. A directory that is not
// there has none: it comes with the first pod.
func entries(dir string) ([]fs.DirEntry, error) {
	list, err := safefile.LinkedEntries(dir, maxContainerNames)
	// With too many, the others have their turn once some of these are gone.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrTooMany) {
		err = nil
	}
	return list, err
}

// logDirs lists the log directories of pods that are gone. It comes before the
// containers are listed.
func (r *containerRound) logDirs(ctx context.Context) (map[types.UID][]string, error) {
	m := r.m
	// While every pod counts as one that lives, no directory could be removed.
	if m.cfg.PodLogsDir == "" || r.situation.Pods == nil {
		return nil, nil
	}
	list, err := containerOnDisk(ctx, m, m.cfg.PodLogsDir, func() ([]fs.DirEntry, error) { return entries(m.cfg.PodLogsDir) })
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	out := map[types.UID][]string{}
	for _, e := range list {
		// A link is no directory here: what it leads to is not ours.
		if uid, ok := logDirOwner(e.Name()); ok && e.IsDir() && r.situation.pod(uid) == Deleted {
			out[uid] = append(out[uid], filepath.Join(m.cfg.PodLogsDir, e.Name()))
		}
	}
	return out, nil
}

// removeDir removes a log directory with all that is in it. Links in it are removed, and not
// what they lead to.
func (m *ContainerCollector) removeDir(ctx context.Context, path string) error {
	_, err := containerOnDisk(ctx, m, path, func() (struct{}, error) { return struct{}{}, os.RemoveAll(path) })
	return err
}

// dangling lists the links to logs that are not there. It comes before the
// containers are listed: those that get a link later are then known.
func (m *ContainerCollector) dangling(ctx context.Context) ([]string, error) {
	if m.cfg.ContainerLogsDir == "" {
		return nil, nil
	}
	out, err := containerOnDisk(ctx, m, m.cfg.ContainerLogsDir, func() ([]string, error) {
		list, err := entries(m.cfg.ContainerLogsDir)
		var out []string
		var logs *safefile.Dir
		if m.cfg.PodLogsDir != "" && len(list) > 0 {
			// All links lead there. Without it each of them is looked at by itself.
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

// dangles reports whether a link leads to one of our logs, and it is not there. A link that
// cannot be read does not dangle: it stays, as all that is in doubt.
// logs is Config.PodLogsDir, or nil.
func (m *ContainerCollector) dangles(logs *safefile.Dir, link string) bool {
	target, err := os.Readlink(link)
	if err != nil || m.cfg.PodLogsDir != "" && !strings.HasPrefix(target, m.cfg.PodLogsDir+string(filepath.Separator)) {
		return false
	}
	return m.missing(logs, target)
}

// missing reports whether a log is not there. A link on its way, below the
// directory of logs, is not followed: a pod may have put it there.
func (m *ContainerCollector) missing(logs *safefile.Dir, path string) bool {
	// Without that directory the target is all there is to go by.
	root := m.cfg.PodLogsDir
	if root == "" {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	within, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(within) {
		return false
	}
	// With the pod's directory the log has gone. Any error, as that of a link on the way,
	// leaves the link.
	exists := func(name string) (bool, error) { return safefile.Exists(root, name) }
	if logs != nil {
		exists = logs.Exists
	}
	there, err := exists(within)
	return err == nil && !there
}

// removeLinks removes links whose container has ended or is unknown. One that
// has not ended has no log for a moment when it is rotated.
func (m *ContainerCollector) removeLinks(ctx context.Context, names []string, containers []Container) (n int, err error) {
	// A container that is not listed has ended and was removed: it is not in the map, which
	// reads as false.
	alive := make(map[string]bool, len(containers))
	for i := range containers {
		alive[containers[i].ID] = containers[i].State != observed.Exited
	}
	return containerOnDisk(ctx, m, m.cfg.ContainerLogsDir, func() (int, error) { return m.unlink(ctx, names, alive) })
}

// unlinkLogsOf removes the links to the logs of containers that were removed, by their IDs.
// What it passes over, such as a link whose name was cut, sweep finds.
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

// isLink reports whether an entry of the directory of links is one: other files there belong
// to others, as to a log collector.
func isLink(e fs.DirEntry) bool {
	return e.Type()&fs.ModeSymlink != 0 && strings.HasSuffix(e.Name(), linkSuffix)
}

// unlink removes those of the links that may go, and counts them. It may run on after its
// caller has given up, so it looks at ctx before each link, and looks once more whether the
// link dangles: a rotation may have ended since the list.
func (m *ContainerCollector) unlink(ctx context.Context, names []string, alive map[string]bool) (n int, err error) {
	var errs []error
	for _, name := range names {
		link := filepath.Join(m.cfg.ContainerLogsDir, name)
		if id, whole := linkedID(name); ctx.Err() != nil || alive[id] || !whole && !m.dirGone(link) || !m.dangles(nil, link) {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.met.failed(logLink)
			errs = append(errs, fmt.Errorf("remove a link to a log: %w", err))
			continue
		}
		m.met.removed(logLink)
		n++
	}
	return n, errors.Join(errs...)
}

// dirGone reports whether a link leads to a directory that is gone: then whoever it was of,
// no rotation brings the log back. It decides on links with a name that was cut, of which
// nobody knows whether the container is alive.
func (m *ContainerCollector) dirGone(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && m.missing(nil, filepath.Dir(target))
}
