package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// Paths on disk and names of objects. All are the kubelet's and must not change, since volumes of
// running pods are found by them.

// pluginName is the kubelet's name of the plugin.
const pluginName = "kubernetes.io/csi"

// Names in directories. They are the kubelet's, so that a machine can change between agent and
// kubelet with its pods running.
const (
	// The record is beside the mount point, since a mount hides the content of its directory.
	recordName = "vol_data.json"
	mountName  = "mount"
	globalName = "globalmount"
	dataName   = "data"
	devName    = "dev"
)

// hashLength is the number of characters of a hash.
const hashLength = 2 * sha256.Size

// hash returns the SHA-256 of the concatenated parts, in hexadecimal. Handles may contain slashes
// and have any length, which names of directories may not.
func hash(s ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(s, "")))
	return hex.EncodeToString(sum[:])
}

// dir returns the plugin's directory for files that do not belong to one pod.
func (m *Manager) dir(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Root, "plugins", pluginName}, elem...)...)
}

// stagingDir returns the path at which a volume with a file system is staged. The record is in
// its parent directory.
func (m *Manager) stagingDir(driver, handle string) string {
	return m.dir(driver, hash(handle), globalName)
}

// blockDir returns a directory of block devices. "staging" has a file or directory for each
// volume. "publish" has a directory for each volume, with a file for each pod. Other names are
// those of volumes; they have the record in "data".
func (m *Manager) blockDir(elem ...string) string {
	return m.dir(append([]string{"volumeDevices"}, elem...)...)
}

// blockDevice is the prefix of device names for volumeMode Block. Other device names begin with
// the driver's name.
const blockDevice = "block/"

// isBlock reports whether a volume is a block device. If the volume has no spec, it checks the
// path, pods/UID/volumeDevices/PLUGIN/NAME.
func isBlock(v *volumemgr.Volume) bool {
	if v.Spec != nil {
		return v.Spec.Block()
	}
	return filepath.Base(filepath.Dir(filepath.Dir(v.Path))) == "volumeDevices"
}

// device returns the [volumemgr.Device] of a volume, which is the part that pods share. A file
// system is identified by its handle, so that two persistent volumes with the same handle are
// staged once.
func (m *Manager) device(src source, name string) volumemgr.Device {
	if src.block {
		return m.blockDeviceOf(name)
	}
	return volumemgr.Device{Name: src.driver + "/" + hash(src.handle), Path: m.stagingDir(src.driver, src.handle)}
}

// blockDeviceOf returns the device of a block volume, which has the name of its persistent
// volume.
func (m *Manager) blockDeviceOf(name string) volumemgr.Device {
	return volumemgr.Device{Name: blockDevice + name, Path: m.blockDir("staging", name)}
}

// ephemeralHandle returns the handle of an inline volume.
func ephemeralHandle(uid, volume string) string { return "csi-" + hash(uid, volume) }

// attachmentName returns the name of the VolumeAttachment of a volume on a node. The controller
// that creates the object computes the same name.
func attachmentName(handle, driver, node string) string { return "csi-" + hash(handle, driver, node) }

// unique returns the name of a volume in the node's status. A controller compares these names
// byte by byte.
func unique(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(pluginName + "/" + driver + "^" + handle)
}
