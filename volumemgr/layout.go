package volumemgr

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Names below ROOT/pods/<uid>. The layout is the kubelet's, so that a machine
// can change from one to the other and back with its pods running.
const (
	podsDir     = "pods"
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"
	pluginsDir  = "plugins"
)

// dirMode is that of directories on the way to a volume (the kubelet's).
const dirMode = 0o750

// escape makes one name of a plugin's, which has a slash in it.
func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

func unescape(dir string) string { return strings.ReplaceAll(dir, "~", "/") }

func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.root, podsDir, string(uid)) }

// paths returns where a volume is, and where its plugin remembers things.
func (m *Manager) paths(uid types.UID, plugin, name string, block bool) (path, state string) {
	kind := volumesDir
	if block {
		kind = devicesDir
	}
	dir := m.podDir(uid)
	return filepath.Join(dir, kind, escape(plugin), name), filepath.Join(dir, pluginsDir, escape(plugin), name)
}

// plain reports whether s can be the name of one directory. Names of pods and
// volumes come from specs, and a spec must not lead out of the root.
func plain(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "/\x00")
}
