package csi

import "github.com/nodewright/nodewright/volumemgr"

// Volume names a volume of a driver. The handle is the driver's own name for it, and
// says nothing to anybody else.
type Volume struct{ Driver, Handle string }

// VolumeOf returns the volume behind a persistent volume; false if it is none of a
// CSI driver. Volumes of drivers that were part of Kubernetes have the names of their
// CSI drivers. Pods' own volumes are none.
func VolumeOf(s *volumemgr.Spec) (Volume, bool) {
	if s.PersistentVolume == nil || !(Plugin{}).Supports(s) {
		return Volume{}, false
	}
	src, err := sourceOf(s, nil, "")
	return Volume{src.driver, src.handle}, err == nil
}
