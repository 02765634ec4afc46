package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Volumes makes a pod's volumes ready on the node and takes them down again.
// Every method is idempotent and returns early when ctx ends.
type Volumes interface {
	// Mount makes every volume of pod ready and returns, by volume name,
	// the host path that containers mount.
	Mount(ctx context.Context, pod *v1.Pod) (map[string]string, error)
	// Unmount takes down whatever is mounted for the pod of that UID and
	// removes what it kept, the content of emptyDir volumes included.
	Unmount(ctx context.Context, uid types.UID) error
}

// localVolumes is the Volumes of an agent that was given none: emptyDir on
// disk or in memory, and hostPath. It keeps no state but the directories
// under <root>/pods/<uid>/volumes, so it needs nothing after a restart.
type localVolumes struct {
	podDir func(types.UID) string
	mounts mounter
}

// mounter is the part of mount(2) that localVolumes needs.
type mounter interface {
	// under lists the mount points at path and below it.
	under(path string) ([]string, error)
	tmpfs(path, options string) error
	unmount(path string) error
}

// The directory names under a pod's volumes directory: the plugin's name with
// '/' escaped as '~', as the kubelet's own layout has it.
const (
	emptyDirPlugin = "kubernetes.io~empty-dir"
	volumesDir     = "volumes"
)

func (l *localVolumes) Mount(ctx context.Context, pod *v1.Pod) (map[string]string, error) {
	paths := make(map[string]string, len(pod.Spec.Volumes))
	var errs []error
	for i := range pod.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		vol := &pod.Spec.Volumes[i]
		path, err := l.mount(pod, vol)
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", vol.Name, err))
			continue
		}
		if path != "" {
			paths[vol.Name] = path
		}
	}
	return paths, errors.Join(errs...)
}

func (l *localVolumes) mount(pod *v1.Pod, vol *v1.Volume) (string, error) {
	switch {
	case vol.EmptyDir != nil:
		return l.emptyDir(pod, vol)
	case vol.HostPath != nil:
		return vol.HostPath.Path, ensureHostPath(vol.HostPath)
	case vol.Image != nil:
		return "", nil // the runtime mounts it
	default:
		return "", fmt.Errorf("unsupported volume type %s; this agent mounts emptyDir, hostPath and image volumes", sourceName(vol))
	}
}

func (l *localVolumes) emptyDir(pod *v1.Pod, vol *v1.Volume) (string, error) {
	path := filepath.Join(l.podDir(pod.UID), volumesDir, emptyDirPlugin, vol.Name)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return "", err
	}
	switch vol.EmptyDir.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		mounts, err := l.mounts.under(path)
		if err != nil {
			return "", err
		}
		if !slices.Contains(mounts, path) {
			options := "mode=0777"
			if q := vol.EmptyDir.SizeLimit; q != nil && q.Value() > 0 {
				options += ",size=" + strconv.FormatInt(q.Value(), 10)
			}
			if err := l.mounts.tmpfs(path, options); err != nil {
				return "", fmt.Errorf("mount tmpfs on %s: %w", path, err)
			}
		}
	default:
		return "", fmt.Errorf("emptyDir.medium: %q is not supported; allowed are \"\" and %q", vol.EmptyDir.Medium, v1.StorageMediumMemory)
	}
	mode := os.FileMode(0o777)
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		if err := os.Chown(path, -1, int(*sc.FSGroup)); err != nil {
			return "", err
		}
		mode |= os.ModeSetgid
	}
	// MkdirAll is subject to the umask, and an adopted directory may carry
	// what an earlier agent gave it.
	return path, os.Chmod(path, mode)
}

// ensureHostPath checks or makes a hostPath as its type says.
func ensureHostPath(h *v1.HostPathVolumeSource) error {
	want := v1.HostPathUnset
	if h.Type != nil {
		want = *h.Type
	}
	if want == v1.HostPathUnset {
		return nil
	}
	fi, err := os.Stat(h.Path)
	if errors.Is(err, os.ErrNotExist) {
		switch want {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(h.Path, 0o755)
		case v1.HostPathFileOrCreate:
			f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath of type %s: %w", want, err)
	}
	ok := false
	switch want {
	case v1.HostPathDirectoryOrCreate, v1.HostPathDirectory:
		ok = fi.IsDir()
	case v1.HostPathFileOrCreate, v1.HostPathFile:
		ok = fi.Mode().IsRegular()
	case v1.HostPathSocket:
		ok = fi.Mode()&os.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = fi.Mode()&os.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = fi.Mode()&os.ModeDevice != 0 && fi.Mode()&os.ModeCharDevice == 0
	default:
		return fmt.Errorf("hostPath.type: %q is not known", want)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", h.Path, want)
	}
	return nil
}

func (l *localVolumes) Unmount(ctx context.Context, uid types.UID) error {
	root := filepath.Join(l.podDir(uid), volumesDir, emptyDirPlugin)
	entries, err := os.ReadDir(root)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(root, e.Name())
		if err := l.takeDown(path); err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// takeDown unmounts and removes one emptyDir. It never removes across a mount
// point: what is mounted below belongs to somebody else.
func (l *localVolumes) takeDown(path string) error {
	mounts, err := l.mounts.under(path)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m != path {
			return fmt.Errorf("%s is still mounted inside the volume", m)
		}
		if err := l.mounts.unmount(path); err != nil {
			return err
		}
	}
	return os.RemoveAll(path)
}

// sourceName names the field of a volume that says what it is.
func sourceName(vol *v1.Volume) string {
	s := vol.VolumeSource
	for _, c := range []struct {
		set  bool
		name string
	}{
		{s.ConfigMap != nil, "configMap"}, {s.Secret != nil, "secret"}, {s.Projected != nil, "projected"},
		{s.DownwardAPI != nil, "downwardAPI"}, {s.PersistentVolumeClaim != nil, "persistentVolumeClaim"},
		{s.CSI != nil, "csi"}, {s.NFS != nil, "nfs"}, {s.ISCSI != nil, "iscsi"}, {s.FC != nil, "fc"},
		{s.Ephemeral != nil, "ephemeral"},
	} {
		if c.set {
			return c.name
		}
	}
	return "unknown"
}

// unescapeMountinfo undoes the octal escapes of /proc/self/mountinfo
// (proc(5): space, tab, newline and backslash).
func unescapeMountinfo(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
