package rank

import "slices"

// Layout defines which of a node's directories share a filesystem.
type Layout int

// The layouts.
const (
	LayoutSingle    Layout = iota // one filesystem for all
	LayoutDedicated               // images and what containers write have their own
	LayoutSplit                   // images have their own, what containers write is elsewhere
)

// String returns single, dedicated or split.
func (l Layout) String() string { return [...]string{"single", "dedicated", "split"}[l] }

// LayoutOf compares the devices of the node's directories. An empty image or
// container device means that it is that of the one before.
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

// ForLayout returns list with thresholds for the filesystem that containers
// write to. They are not to be set: they are those of the filesystem it is,
// or stands for. What list has of them is left out, and returned as ignored.
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
