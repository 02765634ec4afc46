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
// to their log files, and read the pod and the container from the name.
const (
	logLinkSuffix = ".log"
	maxFileName   = 255 // bytes, of ext4 and most others (path_resolution(7))
)

// logLink returns the path of a container's link, or "" if the Manager makes no links. A name that
// is too long for a file is cut at its end, which is usually in the ID.
func (m *Manager) logLink(pod, namespace, container, id string) string {
	name := fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id)
	if m.cfg.ContainerLogsDir == "" || strings.ContainsRune(name, filepath.Separator) {
		return ""
	}
	name = name[:min(len(name), maxFileName-len(logLinkSuffix))]
	return filepath.Join(m.cfg.ContainerLogsDir, name+logLinkSuffix)
}

// linkLog makes the link of a container that was started, if it has a log. A failure is only
// logged: the container runs without the link.
func (s *syncing) linkLog(ctx context.Context, id, container, logPath string) {
	link := s.m.logLink(s.pod.Name, s.pod.Namespace, container, id)
	if link == "" || logPath == "" {
		return
	}
	// The work goes on when ctx ends: the container runs, and no later step makes
	// its link.
	target := filepath.Join(s.sandboxConf.GetLogDirectory(), logPath)
	_, err := onDisk(context.WithoutCancel(ctx), &s.m.disk, s.pod.UID, inLogs, func() (struct{}, error) {
		if _, err := os.Lstat(target); err != nil {
			return struct{}{}, nil //nolint:nilerr // there is nothing to lead to
		}
		return struct{}{}, symlink(target, link, s.m.cfg.PodLogsDir)
	})
	if err != nil {
		s.m.cfg.Log.Warn("failed to create link to container log", zap.String("container", id), zap.Error(err))
	}
}

// symlink makes link, a symbolic link to target, which is a log below the directory logs. An
// existing link that leads below logs is replaced: it is of an earlier instance, whose name was cut
// at the same place.
func symlink(target, link, logs string) error {
	err := os.Symlink(target, link)
	// The directory is made only where it is missing: the first attempt mostly
	// does.
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(link), 0o755); err == nil { //nolint:gosec // log collectors are other users
			err = os.Symlink(target, link)
		}
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file or link of somebody else, as of another agent, is not ours to remove.
	if old, err := os.Readlink(link); err != nil || !strings.HasPrefix(old, logs+string(filepath.Separator)) {
		return fmt.Errorf("%s exists and is not a link to a log below %s", link, logs)
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(target, link)
}

// unlinkLog removes a container's link if it leads to the log of c. A failure is logged.
func (m *Manager) unlinkLog(c *observed.Container) {
	link := m.logLink(c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], c.Name, c.ID)
	if link == "" {
		return
	}
	// A name that was cut may be of another instance by now.
	if target, err := os.Readlink(link); err != nil || target != filepath.Clean(c.LogPath) {
		return
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.cfg.Log.Warn("failed to remove link to container log", zap.String("container", c.ID), zap.Error(err))
	}
}
