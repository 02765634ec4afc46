package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// Where things are on disk, and how objects are named. All of it is the kubelet's and
// must not change: volumes of pods that run are found by it.

// pluginName is the kubelet's.
const pluginName = "kubernetes.io/csi"

// Names in directories, the kubelet's: a machine can change from one to the other
// with its pods running.
const (
	// The record is beside the mount point, which hides the content of its
	// directory.
	recordName = "vol_data.json"
	mountName  = "mount"
	globalName = "globalmount"
	dataName   = "data"
	devName    = "dev"
)

// hashLength is how many characters a hash has.
const hashLength = 2 * sha256.Size

// hash is the SHA-256 of the parts put together, without anything between them, in
// hexadecimal digits. Handles may have slashes and any length; names of directories
// may not.
func hash(s ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(s, "")))
	return hex.EncodeToString(sum[:])
}

// dir returns the plugin's directory for files that do not belong to one pod.
func (m *Manager) dir(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Root, "plugins", pluginName}, elem...)...)
}

// stagingDir is where a volume with a file system is staged; its parent has its
// record.
func (m *Manager) stagingDir(driver, handle string) string {
	return m.dir(driver, hash(handle), globalName)
}

// blockDir is a directory of block devices: "staging" has a file or directory for
// each volume, "publish" a directory with a file for each pod. Every other name is a
// volume's, with its record in "data".
func (m *Manager) blockDir(elem ...string) string {
	return m.dir(append([]string{"volumeDevices"}, elem...)...)
}

// blockDevice begins the names of devices of volumeMode Block. Names of other devices
// begin with that of their driver.
const blockDevice = "block/"

// isBlock reports whether a volume is a block device. Without a spec it checks the
// path: pods/UID/volumeDevices/PLUGIN/NAME.
func isBlock(v *volumemgr.Volume) bool {
	if v.Spec != nil {
		return v.Spec.Block()
	}
	return filepath.Base(filepath.Dir(filepath.Dir(v.Path))) == "volumeDevices"
}

// device returns the part of a volume that pods share. A file system is shared by
// handle, so that two persistent volumes with the same handle are staged once.
func (m *Manager) device(src source, name string) volumemgr.Device {
	if src.block {
		return m.blockDeviceOf(name)
	}
	return volumemgr.Device{Name: src.driver + "/" + hash(src.handle), Path: m.stagingDir(src.driver, src.handle)}
}

// blockDeviceOf is the device of a block volume, by the name of its persistent
// volume.
func (m *Manager) blockDeviceOf(name string) volumemgr.Device {
	return volumemgr.Device{Name: blockDevice + name, Path: m.blockDir("staging", name)}
}

// ephemeralHandle is the handle of a volume that a pod brings itself.
func ephemeralHandle(uid, volume string) string { return "csi-" + hash(uid, volume) }

// attachmentName is the name of the VolumeAttachment of a volume on a node. The
// controller that makes the object computes it alike.
func attachmentName(handle, driver, node string) string { return "csi-" + hash(handle, driver, node) }

// unique is how the node's status names a volume. A controller compares the names
// byte by byte.
func unique(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(pluginName + "/" + driver + "^" + handle)
}
