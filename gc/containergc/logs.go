package containergc

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
)

const (
	linkSuffix  = ".log"
	maxFileName = 255 // bytes, of ext4 and most others (path_resolution(7))
)

// logDirOwner reads whose a directory of logs is: <namespace>_<name>_<uid>.
// Neither names nor UIDs have an underscore; what is named otherwise is not
// ours to remove.
func logDirOwner(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}

// linkedID reads the container's ID from the name of a link to its log,
// <pod>_<namespace>_<container>-<id>.log. whole is false if the name was cut to
// be a file's, mostly at the cost of the ID.
func linkedID(name string) (id string, whole bool) {
	id = strings.TrimSuffix(name, linkSuffix)
	return id[strings.LastIndexByte(id, '-')+1:], len(name) < maxFileName
}

// logDirs lists the log directories of pods that are gone. It comes before the
// containers are listed.
func (r *round) logDirs() (map[types.UID][]string, error) {
	m := r.m
	if m.cfg.PodLogsDir == "" || r.situation.Pods == nil {
		return nil, nil
	}
	entries, err := os.ReadDir(m.cfg.PodLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	out := map[types.UID][]string{}
	for _, e := range entries {
		if uid, ok := logDirOwner(e.Name()); ok && e.IsDir() && r.situation.pod(uid) == Deleted {
			out[uid] = append(out[uid], filepath.Join(m.cfg.PodLogsDir, e.Name()))
		}
	}
	return out, nil
}

// dangling lists the links to logs that are not there. It comes before the
// containers are listed: those that get a link later are then known.
func (m *Manager) dangling() ([]string, error) {
	if m.cfg.ContainerLogsDir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(m.cfg.ContainerLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list links to logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || !strings.HasSuffix(e.Name(), linkSuffix) {
			continue
		}
		if m.dangles(filepath.Join(m.cfg.ContainerLogsDir, e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// dangles tells whether a link leads to one of our logs, and it is not there.
func (m *Manager) dangles(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || m.cfg.PodLogsDir != "" && !strings.HasPrefix(target, m.cfg.PodLogsDir+string(filepath.Separator)) {
		return false
	}
	_, err = os.Stat(link)
	return errors.Is(err, fs.ErrNotExist)
}

// removeLinks removes links whose container has ended or is unknown. One that
// has not ended has no log for a moment when it is rotated.
func (m *Manager) removeLinks(ctx context.Context, names []string, containers []Container) (n int, err error) {
	alive := make(map[string]bool, len(containers))
	for i := range containers {
		alive[containers[i].ID] = containers[i].State != observed.Exited
	}
	var errs []error
	for _, name := range names {
		link := filepath.Join(m.cfg.ContainerLogsDir, name)
		if id, whole := linkedID(name); ctx.Err() != nil || alive[id] || !whole && !dirGone(link) || !m.dangles(link) {
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

// dirGone tells whether a link leads to a directory that is gone: then whoever
// it was of, no rotation brings the log back.
func dirGone(link string) bool {
	target, err := os.Readlink(link)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Dir(target))
	return errors.Is(err, fs.ErrNotExist)
}
