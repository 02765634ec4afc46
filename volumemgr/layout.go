package volumemgr

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Names below ROOT/pods/<uid>. The layout is the kubelet's, so that a machine can change between
// both with its pods running.
const (
	// Directories of a pod. volume-subpaths has the bind mounts of subPaths, which the runtime
	// uses instead of the volume.
	podsDir     = "pods"
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"
	// Below a pod's directory, it has the plugins' own files about a volume. ROOT/plugins, with
	// the mounts of devices, has the same name.
	pluginsDir = "plugins"
)

// dirMode is the mode of directories above a volume (the kubelet's).
const dirMode = 0o750

// escape replaces the slash in a plugin's name, to make it the name of a directory.
func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// unescape is the inverse of escape. Config.validate rejects names that would not survive both.
func unescape(dir string) string { return strings.ReplaceAll(dir, "~", "/") }

// podDir returns ROOT/pods/UID. The UID must have been checked with the function
// plain, or be the name of a directory there.
func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.root, podsDir, string(uid)) }

// paths returns the path of a volume, and the path of its plugin's state directory.
func (m *Manager) paths(uid types.UID, plugin, name string, block bool) (path, state string) {
	kind := volumesDir
	if block {
		kind = devicesDir
	}
	dir := m.podDir(uid)
	return filepath.Join(dir, kind, escape(plugin), name), filepath.Join(dir, pluginsDir, escape(plugin), name)
}

// plain reports whether s can be the name of one directory. Names of pods and volumes come from
// specs, and must not lead out of the root. 255 bytes is NAME_MAX of Linux.
func plain(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "/\x00")
}
