package csi

import "github.com/nodewright/nodewright/volumemgr"

// Volume identifies a volume of a driver. The handle is the driver's name for it.
type Volume struct{ Driver, Handle string }

// VolumeOf returns the driver and handle of a persistent volume. It returns false if the volume
// is inline or not a CSI volume. For volumes of former in-tree drivers, it returns their CSI
// drivers.
func VolumeOf(s *volumemgr.Spec) (Volume, bool) {
	if s.PersistentVolume == nil || !(Plugin{}).Supports(s) {
		return Volume{}, false
	}
	src, err := sourceOf(s, nil, "")
	return Volume{src.driver, src.handle}, err == nil
}
