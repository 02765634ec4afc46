package podruntime

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podspec"
)

// materialize makes the directories and files that a container needs, below its pod's directory and
// the directory of logs. Containers mount some of these files and write to them, and pods that
// mount the directories may put anything there. So no link is followed, an existing file is read
// only if its length is the expected one, and anything that is not a regular file is replaced.
func (s *syncing) materialize(ctx context.Context, plan *podspec.ContainerPlan) error {
	// Two steps, as logs and the pod's directory may be on different disks, of
	// which one hangs.
	podDir, logsDir := s.in.PodDir, s.in.Node.PodLogsDir
	_, err := onDisk(ctx, &s.m.disk, s.pod.UID, inLogs, func() (struct{}, error) {
		for _, d := range plan.Dirs {
			if _, err := below(logsDir, d.Path); err == nil {
				if err := makeDir(logsDir, d); err != nil {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	_, err = onDisk(ctx, &s.m.disk, s.pod.UID, inPodDir, func() (struct{}, error) {
		for _, d := range plan.Dirs {
			if _, err := below(logsDir, d.Path); err != nil {
				if err := makeDir(podDir, d); err != nil {
					return struct{}{}, err
				}
			}
		}
		for _, f := range plan.Files {
			if err := writeFile(podDir, f); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// makeDir makes the directory d and its missing parents, up to and including root. New
// directories get the mode of d, whatever the umask is. Existing directories stay as they are.
func makeDir(root string, d podspec.Dir) error {
	held, err := hold(root, d.Path, d.Mode)
	if err != nil {
		return err
	}
	return held.Close()
}

// hold makes the directory at path below root and returns it open. If a pod replaces the path
// later, the open directory stays the same.
func hold(root, path string, mode fs.FileMode) (*safefile.Dir, error) {
	rel, err := below(root, path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, mode); err != nil {
		return nil, err
	}
	return safefile.MakeDir(root, rel, mode)
}

// writeFile writes the file f below the directory podDir. A file that running containers mount is
// written in place and stays the same file. If f is to be kept, an existing regular file is left
// alone.
func writeFile(podDir string, f podspec.File) error {
	dir, err := hold(podDir, filepath.Dir(f.Path), 0o750)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name := filepath.Base(f.Path)
	// A file that the container writes to, such as a termination message, is kept
	// over retries; a link or a device in its place is not.
	if info, err := dir.Lstat(name); f.Keep && err == nil && info.Mode().IsRegular() {
		return nil
	}
	return dir.Write(name, []byte(f.Content), f.Mode)
}
