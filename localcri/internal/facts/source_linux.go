package facts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// found is the result of examining a host path.
type found struct {
	devices []ocispec.Device
	source  ocispec.Source
}

func (f *Facts) detach(ctx context.Context, key string, look func() (found, error)) (found, error) {
	return f.hostile.Do(ctx, key, look)
}

// Sources returns, for each mount, the description of its host path, by index. It creates a
// directory if the path does not exist. The entry for an image mount stays empty, since the
// image store provides it. The propagation is read only if the mount asks for one, since the
// mount table is long.
func (f *Facts) Sources(ctx context.Context, mounts []*runtimeapi.Mount) ([]ocispec.Source, error) {
	out := make([]ocispec.Source, len(mounts))
	for i, m := range mounts {
		if m.GetImage().GetImage() != "" {
			continue
		}
		spreads := m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE
		found, err := f.detach(ctx, fmt.Sprint("source ", spreads, " ", m.GetHostPath()), func() (found, error) {
			s, err := f.source(m.GetHostPath(), spreads)
			return found{source: s}, err
		})
		if err != nil {
			return nil, fmt.Errorf("mounts[%d].host_path %.200q: %w", i, m.GetHostPath(), err)
		}
		out[i] = found.source
	}
	return out, nil
}

func (f *Facts) source(host string, spreads bool) (ocispec.Source, error) {
	if !filepath.IsAbs(host) || strings.ContainsRune(host, 0) {
		return ocispec.Source{}, nil
	}
	resolved, err := filepath.EvalSymlinks(host)
	if errors.Is(err, fs.ErrNotExist) {
		resolved, err = makeSource(host)
	}
	if err != nil || !spreads {
		return ocispec.Source{Path: resolved}, err
	}
	id, err := f.mountOf(resolved)
	if err != nil {
		return ocispec.Source{}, err
	}
	table, err := safefile.ReadFile(f.proc("self/mountinfo"), maxTable)
	if err != nil {
		return ocispec.Source{}, err
	}
	propagation, err := propagationOf(table, id)
	return ocispec.Source{Path: resolved, Propagation: propagation}, err
}

// makeSource creates a directory and its missing parents with mode 0755, regardless of the umask,
// and returns its path with links resolved. The CRI wants an error for a missing source, but
// containerd, CRI-O and Docker create it, and hostPath volumes without a type rely on that.
func makeSource(host string) (string, error) {
	above, name := filepath.Clean(host), ""
	for {
		above, name = filepath.Dir(above), filepath.Join(filepath.Base(above), name)
		resolved, err := filepath.EvalSymlinks(above)
		if errors.Is(err, fs.ErrNotExist) && above != "/" {
			continue
		}
		if err != nil {
			return "", err
		}
		d, err := safefile.MakeDir(resolved, name, 0o755)
		if err != nil {
			return "", fmt.Errorf("make directory: %w", err)
		}
		return filepath.Join(resolved, name), d.Close()
	}
}

// maxTable is the limit for reading the mount table, in bytes. A namespace has at most 100,000
// mounts (fs.mount-max).
const maxTable = 64 << 20

// mountOf returns the ID of the mount that contains a path.
func (f *Facts) mountOf(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	// Not below Config.Proc, since the descriptor belongs to this process.
	b, err := safefile.ReadFile("/proc/self/fdinfo/"+strconv.Itoa(fd), maxSmall)
	if err != nil {
		return 0, err
	}
	return mountID(b)
}

// mountID returns the mount ID in the content of a fdinfo file (proc_pid_fdinfo(5)).
func mountID(fdinfo []byte) (int, error) {
	for line := range bytes.Lines(fdinfo) {
		if v, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	return 0, fmt.Errorf("fdinfo has no mnt_id")
}

// propagationOf returns the propagation of the mount with the given ID in a mount table. It is
// "shared" if new mounts on the mount appear elsewhere, "slave" if the mount only receives new
// mounts, and "private" otherwise.
func propagationOf(table []byte, id int) (string, error) {
	prefix := []byte(strconv.Itoa(id) + " ")
	for line := range bytes.Lines(table) {
		if !bytes.HasPrefix(line, prefix) {
			continue
		}
		entries, err := mount.ParseTable(line)
		if err != nil || len(entries) != 1 {
			return "", fmt.Errorf("parse line of mount %d: %w", id, err)
		}
		propagation := "private"
		for _, tag := range entries[0].Tags {
			switch {
			case strings.HasPrefix(tag, "shared:"):
				return "shared", nil
			case strings.HasPrefix(tag, "master:"):
				propagation = "slave"
			}
		}
		return propagation, nil
	}
	// The mount is gone, or not visible to this process.
	return "private", nil
}
