// Package local gives pods disks and directories of this node as persistent
// volumes.
//
//	p, err := local.New(local.Config{Mounter: &mount.Kernel{}, Root: "/var/lib/agent"})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin, DevicePlugin and BlockPlugin
//
// A directory is bind-mounted into the pod's own. A block device is handed out
// as it is, or, with volumeMode Filesystem, formatted if it is empty, checked,
// mounted once below Root/plugins and bound from there.
//
// The first pod decides about the group of the files: while another has the
// volume mounted, a different fsGroup makes an event and nothing else.
//
// # Faults
//
// A set-up that fails takes down its own mount. A device with another file
// system than the wanted one is an error ([ErrMismatch]) and never formatted,
// and so is one whose content cannot be told.
package local
