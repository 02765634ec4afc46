package csi

import "github.com/nodewright/nodewright/volumemgr"

// Volume names a volume of a driver. The handle is the driver's own name for it.
type Volume struct{ Driver, Handle string }

// VolumeOf returns the driver and handle of a persistent volume; false if it is not
// a CSI volume. Volumes of former in-tree drivers have the names of their CSI
// drivers. Inline volumes of pods have none.
func VolumeOf(s *volumemgr.Spec) (Volume, bool) {
	if s.PersistentVolume == nil || !(Plugin{}).Supports(s) {
		return Volume{}, false
	}
	src, err := sourceOf(s, nil, "")
	return Volume{src.driver, src.handle}, err == nil
}
