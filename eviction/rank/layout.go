package rank

import "slices"

// Layout defines which of a node's directories share a filesystem.
type Layout int

// The layouts.
const (
	LayoutSingle    Layout = iota // one filesystem for all
	LayoutDedicated               // images and writable layers share a second filesystem
	LayoutSplit                   // images have their own filesystem; writable layers are on the node's
)

// String returns single, dedicated or split.
func (l Layout) String() string { return [...]string{"single", "dedicated", "split"}[l] }

// LayoutOf returns the layout for the devices of the node's directories, of images and of writable
// layers. If image is "", it is the same device as node; if container is "", it is the same device
// as image.
func LayoutOf(node, image, container string) Layout {
	if image == "" {
		image = node
	}
	if container == "" {
		container = image
	}
	switch {
	case image != container:
		return LayoutSplit
	case image != node:
		return LayoutDedicated
	default:
		return LayoutSingle
	}
}

// ForLayout adds thresholds for containerfs to list: copies of those of the filesystem that it
// is part of. Thresholds for containerfs in list are removed, and returned as ignored, since
// they cannot be set.
func ForLayout(list []Threshold, l Layout) (complete, ignored []Threshold) {
	from := map[Signal]Signal{SignalNodeFs: SignalContainerFs, SignalNodeFsInodes: SignalContainerFsInodes}
	if l == LayoutDedicated {
		from = map[Signal]Signal{SignalImageFs: SignalContainerFs, SignalImageFsInodes: SignalContainerFsInodes}
	}
	var derived []Threshold
	for _, t := range list {
		if t.Signal == SignalContainerFs || t.Signal == SignalContainerFsInodes {
			ignored = append(ignored, t)
			continue
		}
		complete = append(complete, t)
		if s, ok := from[t.Signal]; ok {
			t.Signal = s
			derived = append(derived, t)
		}
	}
	return slices.Concat(complete, derived), ignored
}
