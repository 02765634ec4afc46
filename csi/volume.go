package csi

import "github.com/nodewright/nodewright/volumemgr"

// Volume names a volume of a driver.
type Volume struct{ Driver, Handle string }

// VolumeOf returns the volume behind a persistent volume; false if it is none of a
// CSI driver.
func VolumeOf(s *volumemgr.Spec) (Volume, bool) {
	if s.PersistentVolume == nil || !(Plugin{}).Supports(s) {
		return Volume{}, false
	}
	src, err := sourceOf(s, nil, "")
	return Volume{src.driver, src.handle}, err == nil
}
