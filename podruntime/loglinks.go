package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
)

// Log collectors find containers by links,
//
//	<ContainerLogsDir>/<pod>_<namespace>_<container>-<ID>.log
//
// to their log files, and read from the name whose they are.
const (
	logLinkSuffix = ".log"
	maxFileName   = 255 // bytes, of ext4 and most others (path_resolution(7))
)

// logLink is the path of a container's link, or "" if it has none. A name too
// long for a file loses its end: mostly of the ID.
func (m *Manager) logLink(pod, namespace, container, id string) string {
	name := fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id)
	if m.cfg.ContainerLogsDir == "" || strings.ContainsRune(name, filepath.Separator) {
		return ""
	}
	name = name[:min(len(name), maxFileName-len(logLinkSuffix))]
	return filepath.Join(m.cfg.ContainerLogsDir, name+logLinkSuffix)
}

// linkedID is the ID in a link's name; not whole, if its end may be missing.
func linkedID(name string) (id string, whole bool) {
	id = strings.TrimSuffix(name, logLinkSuffix)
	return id[strings.LastIndexByte(id, '-')+1:], len(name) < maxFileName
}

// linkLog makes the link of a container that was started, if it has a log. One
// that fails is logged: the container runs all the same.
func (s *syncing) linkLog(id, container, logPath string) {
	link := s.m.logLink(s.pod.Name, s.pod.Namespace, container, id)
	if link == "" || logPath == "" {
		return
	}
	target := filepath.Join(s.sandboxConf.GetLogDirectory(), logPath)
	if _, err := os.Lstat(target); err != nil {
		return
	}
	if err := symlink(target, link); err != nil {
		s.m.cfg.Log.Warn("a container's log has no link", zap.String("container", id), zap.Error(err))
	}
}

// symlink makes a link. One that is there is of an instance before, whose name
// lost the same end.
func symlink(target, link string) error {
	err := os.Symlink(target, link)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(link), 0o755); err == nil { //nolint:gosec // log collectors are other users
			err = os.Symlink(target, link)
		}
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is there and is no link", link)
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(target, link)
}

// unlinkLog removes a container's link, if it is that container's. One that
// stays is logged; PruneLogLinks comes back to it.
func (m *Manager) unlinkLog(c *observed.Container) {
	link := m.logLink(c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], c.Name, c.ID)
	if link == "" {
		return
	}
	if target, err := os.Readlink(link); err != nil || target != filepath.Clean(c.LogPath) {
		return
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.cfg.Log.Warn("the link to a container's log stays", zap.String("container", c.ID), zap.Error(err))
	}
}

// PruneLogLinks removes the links to logs that are not there any more. live
// tells of a container's ID whether it may have a log again: one that has not
// ended has none for a moment whenever its log is rotated. It may be called at
// any time.
func (m *Manager) PruneLogLinks(ctx context.Context, live func(containerID string) bool) error {
	if m.cfg.ContainerLogsDir == "" {
		return nil
	}
	entries, err := os.ReadDir(m.cfg.ContainerLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		if e.Type()&fs.ModeSymlink != 0 && strings.HasSuffix(e.Name(), logLinkSuffix) && m.dangles(e.Name(), live) {
			if err := os.Remove(filepath.Join(m.cfg.ContainerLogsDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// dangles tells whether a link leads to one of our logs that is gone for good.
func (m *Manager) dangles(name string, live func(containerID string) bool) bool {
	link := filepath.Join(m.cfg.ContainerLogsDir, name)
	target, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(target, m.cfg.PodLogsDir+string(filepath.Separator)) {
		return false
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if id, whole := linkedID(name); whole {
		return !live(id)
	}
	// Whose it is cannot be told: it goes with the logs of all instances.
	_, err = os.Stat(filepath.Dir(target))
	return errors.Is(err, fs.ErrNotExist)
}
