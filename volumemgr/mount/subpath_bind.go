package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

// Modes of the mount points of subPaths, and of their parent directories.
const (
	dirMode  = fs.FileMode(0o750)
	fileMode = fs.FileMode(0o640)
)

// targetDir is the directory in a pod's directory that has the mount points of subPaths.
const targetDir = "volume-subpaths"

// SubPathConfig configures a [SubPathBinder]. Mounter is required.
type SubPathConfig struct {
	Mounter Mounter
	Walk    SubPathWalk
}

// deadline limits how long Bind waits for a volume that does not answer. maxHung limits the
// number of such calls, since a Go program ends at 10,000 threads.
const (
	deadline       = 2 * time.Minute
	maxSubPathHung = 1000
)

// SubPathBinder mounts parts of volumes for containers. If a volume's server blocks a call, the
// call is abandoned when its context ends, or after two minutes. Until it returns, further
// attempts of the same call wait for it.
type SubPathBinder struct {
	cfg     SubPathConfig
	opened  func(SubPathRequest) (opened, error)
	sources detached.Group[opened]
	targets detached.Group[fs.FileInfo]
}

// opened is an opened part of a volume.
type opened struct {
	file *os.File
	info fs.FileInfo
}

// NewSubPathBinder validates cfg and returns a SubPathBinder.
func NewSubPathBinder(cfg SubPathConfig) (*SubPathBinder, error) {
	if cfg.Mounter == nil {
		return nil, errors.New("subpath: SubPathConfig.Mounter is required")
	}
	b := &SubPathBinder{cfg: cfg, sources: detached.Group[opened]{Limit: maxSubPathHung}, targets: detached.Group[fs.FileInfo]{Limit: maxSubPathHung}}
	b.opened = b.open
	return b, nil
}

// SubPathRequest names a part of a volume, and the container's mount of it.
type SubPathRequest struct {
	// PodDir is the pod's directory on the node.
	PodDir string
	// Volume is the volume's name on disk, and VolumePath its path.
	Volume, VolumePath string
	// Container is the container's name, and Index the index of its volumeMount.
	Container string
	Index     int
	// SubPath is relative to the volume. It must be UTF-8, without NUL and without "..".
	SubPath string
}

// Bind mounts the part of the volume and returns the path for the container to mount. A missing
// directory is created, with the mode of the volume's root. A mount of an earlier Bind is reused
// if it is still the same file.
func (b *SubPathBinder) Bind(ctx context.Context, r SubPathRequest) (hostPath string, err error) {
	if err := checkSubPath(r.SubPath); err != nil {
		return "", err
	}
	for _, name := range []string{r.Volume, r.Container} {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return "", fmt.Errorf("%q: invalid name of a volume or container", name)
		}
	}
	defer func() {
		if err != nil {
			err = &SubPathError{Volume: r.Volume, SubPath: r.SubPath, Err: err}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	// If the caller gives up, the garbage collector closes the file.
	o, err := b.sources.Do(ctx, fmt.Sprintf("%#v", r), func() (opened, error) { return b.opened(r) })
	if err != nil {
		return "", err
	}
	source, info := o.file, o.info
	defer func() { _ = source.Close() }()
	target := filepath.Join(r.PodDir, targetDir, r.Volume, r.Container, strconv.Itoa(r.Index))
	mounted, err := b.prepare(ctx, target, info)
	if err != nil {
		return "", err
	}
	if mounted {
		return target, nil
	}
	// The open file is mounted, not its path, which may lead elsewhere by now.
	if err := b.cfg.Mounter.Bind(ctx, Bind{Source: source.Name(), File: source, Target: target}); err != nil {
		return "", errors.Join(err, Clean(context.WithoutCancel(ctx), b.cfg.Mounter, target, Plain))
	}
	return target, nil
}

func (b *SubPathBinder) open(r SubPathRequest) (opened, error) {
	f, err := b.source(r)
	if err != nil {
		return opened{}, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return opened{}, err
	}
	return opened{f, info}, nil
}

// source opens the part of the volume, and creates it if it does not exist.
func (b *SubPathBinder) source(r SubPathRequest) (*os.File, error) {
	w := b.cfg.Walk
	_, _, err := w.Resolve(r.VolumePath, r.SubPath)
	if errors.Is(err, fs.ErrNotExist) {
		root, serr := os.Stat(r.VolumePath)
		if serr != nil {
			return nil, serr
		}
		const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
		err = w.MakeDir(r.VolumePath, r.SubPath, root.Mode()&bits)
	}
	if err != nil {
		return nil, err
	}
	base, rel, err := w.Resolve(r.VolumePath, r.SubPath)
	if err != nil {
		return nil, err
	}
	return w.Open(base, rel)
}

// prepare creates the target. It reports whether the file want is already mounted there.
func (b *SubPathBinder) prepare(ctx context.Context, target string, want fs.FileInfo) (mounted bool, err error) {
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return false, err
	}
	found, err := Find(ctx, b.cfg.Mounter, target)
	if err != nil {
		return false, err
	}
	if len(found) > 0 {
		is, err := b.targets.Do(ctx, target, func() (fs.FileInfo, error) { return os.Lstat(target) })
		switch {
		case err == nil && os.SameFile(is, want):
			return true, nil
		case ctx.Err() != nil:
			return false, err
		}
		// The source is another file now.
		if err := Clean(ctx, b.cfg.Mounter, target, Plain); err != nil {
			return false, err
		}
	}
	is, err := os.Lstat(target)
	if err == nil && (is.IsDir() != want.IsDir() || !is.IsDir() && !is.Mode().IsRegular()) {
		if err := os.Remove(target); err != nil {
			return false, err
		}
		err = fs.ErrNotExist
	}
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist) && !os.IsNotExist(err):
		return false, err
	case want.IsDir():
		return false, os.Mkdir(target, dirMode)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

// Clean unmounts everything that Bind mounted from a volume, for all containers, and removes the
// empty directories. It continues after an error and returns all errors.
func (b *SubPathBinder) Clean(ctx context.Context, podDir, volume string) error {
	if volume == "" || volume == "." || volume == ".." || strings.ContainsAny(volume, "/\x00") {
		return fmt.Errorf("%q: invalid name of a volume", volume)
	}
	top := filepath.Join(podDir, targetDir)
	dir := filepath.Join(top, volume)
	containers, err := entries(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers {
		targets, err := entries(c)
		errs = append(errs, err)
		for _, target := range targets {
			errs = append(errs, Clean(ctx, b.cfg.Mounter, target, Plain))
		}
		errs = append(errs, removeEmpty(c))
	}
	errs = append(errs, removeEmpty(dir), removeEmpty(top))
	return errors.Join(errs...)
}

// entries returns the paths of the entries of dir, which must not be a link. If dir does not
// exist, there are none.
func entries(dir string) ([]string, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is %v; want a directory", dir, info.Mode().Type())
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = filepath.Join(dir, e.Name())
	}
	return out, nil
}

// removeEmpty removes dir if it is an empty directory.
func removeEmpty(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(dir)
}
