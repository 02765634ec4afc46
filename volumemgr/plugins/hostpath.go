package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/volumemgr"
)

// maxPath is PATH_MAX of linux/limits.h, in bytes, including the final NUL.
const maxPath = 4096

// Modes of created files and directories.
const (
	dirMode  = fs.FileMode(0o755)
	fileMode = fs.FileMode(0o644)
)

// maxHung limits the number of paths with hung calls, since a Go program ends at 10,000 threads.
const maxHung = 1000

// hostPathPlugin implements hostPath volumes.
//
//	p := newHostPath()
//	// p is a volumemgr.Plugin
//
// Nothing is mounted: containers mount the path itself. Each set-up checks the path against the
// volume's type, and creates it if the type says so. If a path is on a server that does not
// answer, the operations of its pods fail. That blocks one thread, however many pods try and
// however often.
//
// A path must be absolute UTF-8, without NUL and without "..", and shorter than the kernel's
// limit. TearDown does nothing: created files are kept.
type hostPathPlugin struct {
	check  func(path string, kind v1.HostPathType) error // checkHostPath
	checks detached.Group[struct{}]                      // running checks, by path and type
}

// newHostPath returns the plugin for hostPath volumes.
func newHostPath() *hostPathPlugin {
	return &hostPathPlugin{check: checkHostPath, checks: detached.Group[struct{}]{Limit: maxHung}}
}

// Name returns "kubernetes.io/host-path".
func (*hostPathPlugin) Name() string { return "kubernetes.io/host-path" }

// hostPathSource returns the volume's source, and whether it is read-only.
func hostPathSource(spec *volumemgr.Spec) (h *v1.HostPathVolumeSource, readOnly bool) {
	if spec.Volume != nil {
		return spec.Volume.HostPath, false
	}
	return spec.PersistentVolume.Spec.HostPath, spec.ReadOnly
}

// Supports reports whether spec is a hostPath.
func (*hostPathPlugin) Supports(spec *volumemgr.Spec) bool {
	h, _ := hostPathSource(spec)
	return h != nil
}

// SetUp checks the path against the volume's type.
func (p *hostPathPlugin) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	h, readOnly := hostPathSource(v.Spec)
	if err := checkPath(h.Path); err != nil {
		return volumemgr.Result{}, err
	}
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	result := volumemgr.Result{Path: h.Path, ReadOnly: readOnly}
	if kind == v1.HostPathUnset {
		return result, nil
	}
	// The path may be on a server that does not answer.
	_, err := p.checks.Do(ctx, string(kind)+" "+h.Path, func() (struct{}, error) { return struct{}{}, p.check(h.Path, kind) })
	if err != nil && ctx.Err() != nil {
		return volumemgr.Result{}, fmt.Errorf("hostPath %s does not answer: %w", h.Path, err)
	}
	return result, err
}

// Check checks an existing path against the volume's type. A missing path is no error if SetUp
// creates it.
func (p *hostPathPlugin) Check(ctx context.Context, spec *volumemgr.Spec) error {
	h, _ := hostPathSource(spec)
	if err := checkPath(h.Path); err != nil || h.Type == nil || *h.Type == v1.HostPathUnset {
		return err
	}
	_, err := p.checks.Do(ctx, "check "+string(*h.Type)+" "+h.Path, func() (struct{}, error) { return struct{}{}, wouldHaveType(h.Path, *h.Type) })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("hostPath %s does not answer: %w", h.Path, err)
	}
	return err
}

// TearDown does nothing: the path belongs to the node.
func (*hostPathPlugin) TearDown(context.Context, *volumemgr.Volume) error { return nil }

// Measure returns ErrNoUsage: the files belong to the node.
func (*hostPathPlugin) Measure(context.Context, *volumemgr.Volume) (volumemgr.Usage, error) {
	return volumemgr.Usage{}, volumemgr.ErrNoUsage
}

// checkPath returns an error if a path is invalid, without accessing it.
func checkPath(p string) error {
	show := p
	if len(show) > 60 {
		show = show[:60] + "..."
	}
	switch {
	case p == "":
		return errors.New("hostPath.path is empty")
	case len(p) >= maxPath:
		return fmt.Errorf("hostPath.path %q has %d bytes, at most %d are allowed", show, len(p), maxPath-1)
	case !utf8.ValidString(p):
		return fmt.Errorf("hostPath.path %q is not UTF-8", show)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("hostPath.path %q contains a NUL", show)
	case slices.Contains(strings.Split(p, "/"), ".."):
		return fmt.Errorf("hostPath.path %q contains the element \"..\"", show)
	case !path.IsAbs(p):
		return fmt.Errorf("hostPath.path %q is relative; want an absolute path", show)
	}
	return nil
}

// checkHostPath returns an error if a path does not have the type. It creates the path if the
// type says so. It follows symbolic links.
func checkHostPath(path string, kind v1.HostPathType) error {
	if kind == v1.HostPathUnset {
		return nil
	}
	if _, known := kindText(kind); !known {
		return fmt.Errorf("hostPath.type %q, want \"\", DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice or BlockDevice", kind)
	}
	if err := create(path, kind); err != nil {
		return fmt.Errorf("hostPath type check failed: %s cannot be made: %w", path, err)
	}
	return hasType(path, kind)
}

// wouldHaveType returns an error if checkHostPath would fail. It creates nothing.
func wouldHaveType(path string, kind v1.HostPathType) error {
	if kind == v1.HostPathDirectoryOrCreate || kind == v1.HostPathFileOrCreate {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return hasType(path, kind)
}

// hasType returns an error if a path does not have the type.
func hasType(path string, kind v1.HostPathType) error {
	want, _ := kindText(kind)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not %s: %w", path, want, err)
	}
	if !is(info.Mode(), kind) {
		return fmt.Errorf("hostPath type check failed: %s is not %s, it's a %s", path, want, kindOf(info.Mode()))
	}
	return nil
}

// create creates a missing file or directory.
func create(path string, kind v1.HostPathType) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // the check that follows reports it
	}
	switch kind {
	case v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, dirMode)
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		if err != nil {
			return err
		}
		return errors.Join(f.Chmod(fileMode), f.Close())
	}
	return nil
}

// kindText returns the name of a hostPath type for error messages.
func kindText(kind v1.HostPathType) (text string, known bool) {
	switch kind {
	case v1.HostPathDirectoryOrCreate, v1.HostPathDirectory:
		return "a directory", true
	case v1.HostPathFileOrCreate, v1.HostPathFile:
		return "a file", true
	case v1.HostPathSocket:
		return "a socket file", true
	case v1.HostPathCharDev:
		return "a character device", true
	case v1.HostPathBlockDev:
		return "a block device", true
	}
	return "", false
}

// kindOf returns the hostPath type of a file, with the kubelet's names since Kubernetes 1.37.
func kindOf(mode fs.FileMode) v1.HostPathType {
	for _, kind := range []v1.HostPathType{v1.HostPathDirectory, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev} {
		if is(mode, kind) {
			return kind
		}
	}
	return "Pipe"
}

func is(mode fs.FileMode, kind v1.HostPathType) bool {
	switch kind {
	case v1.HostPathDirectoryOrCreate, v1.HostPathDirectory:
		return mode.IsDir()
	case v1.HostPathFileOrCreate, v1.HostPathFile:
		return mode.IsRegular()
	case v1.HostPathSocket:
		return mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		return mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	}
	return false
}
