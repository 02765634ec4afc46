package status

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Apply writes into node the status that follows from the inputs in, and the annotation of its
// addresses. A part of the status whose input has an error keeps its value; all other parts are
// written. Send the events once the node's new state is published. Apply reads no clock and stores
// only seen. Afterwards node may share slices and maps of in. Calls with the same seen must not
// overlap.
func Apply(node *v1.Node, in *Inputs, seen *Seen, now time.Time) ([]Event, error) {
	s, at := &node.Status, metav1.NewTime(now)
	// The order is the kubelet's: it decides the order of events, and that Ready is
	// the last of the conditions.
	errs := []error{setAddresses(node, in.Addressing)}
	events := setMachine(node, in, seen)
	errs = append(errs, setVersions(node, in))
	s.DaemonEndpoints.KubeletEndpoint.Port = in.Port
	errs = append(errs, in.ImagesErr)
	// With an error the earlier images are dropped: the scheduler would prefer the
	// node for images that may be gone.
	s.Images = nil
	if in.ImagesErr == nil {
		s.Images = showImages(in.Images, in.MaxImages)
	}
	s.NodeInfo.OperatingSystem = cmp.Or(in.Facts.OS, runtime.GOOS)
	s.NodeInfo.Architecture = cmp.Or(in.Facts.Arch, runtime.GOARCH)
	s.RuntimeHandlers = in.Handlers
	// A nil value was not reported by the runtime, so the published value is kept.
	if in.Features != nil {
		s.Features = in.Features
	}
	// All conditions of one call have one time, so that they can be compared.
	events = append(events, memoryPressure.set(node, in.MemoryPressure, at)...)
	events = append(events, diskPressure.set(node, in.DiskPressure, at)...)
	events = append(events, pidPressure.set(node, in.PIDPressure, at)...)
	// setReady checks the capacity, so it comes after setMachine.
	events = append(events, setReady(node, in, at)...)
	// Before the volumes are known, an empty list would let a controller detach
	// disks in use.
	if in.VolumesSynced {
		s.VolumesInUse = in.VolumesInUse
	}
	events = append(events, seen.schedulable(node)...)
	if in.Declared != nil {
		s.DeclaredFeatures = in.Declared
	}
	return events, errors.Join(errs...)
}

// setVersions writes the versions of the kernel, the OS, the runtime and the agent into
// node. If in.FactsErr is set it returns an error, and these fields keep their values.
// The deprecated KubeProxyVersion is cleared in either case.
func setVersions(node *v1.Node, in *Inputs) error {
	info := &node.Status.NodeInfo
	info.KubeProxyVersion = "" //nolint:staticcheck // it is deprecated, which is why it is cleared
	if in.FactsErr != nil {
		return fmt.Errorf("read facts of the machine: %w", in.FactsErr)
	}
	info.KernelVersion, info.OSImage = in.Facts.Kernel, in.Facts.OSImage
	// The two spellings of unknown are the kubelet's.
	info.ContainerRuntimeVersion = cmp.Or(in.RuntimeName, "unknown") + "://" + cmp.Or(in.RuntimeVersion, "Unknown")
	info.KubeletVersion = in.Version
	return nil
}

// schedulable returns an event if the node was cordoned or uncordoned since the last call. A node
// that is cordoned when the agent starts gets an event too.
func (seen *Seen) schedulable(node *v1.Node) []Event {
	if node.Spec.Unschedulable == seen.unschedulable {
		return nil
	}
	seen.unschedulable = node.Spec.Unschedulable
	if seen.unschedulable {
		return []Event{statusEvent(node.Name, "NodeNotSchedulable")}
	}
	return []Event{statusEvent(node.Name, "NodeSchedulable")}
}

// sortedHandlers copies runtime handlers, sorted by name, so that a runtime that
// reports them in another order changes nothing. h is not changed.
func sortedHandlers(h []v1.NodeRuntimeHandler) []v1.NodeRuntimeHandler {
	out := slices.Clone(h)
	slices.SortStableFunc(out, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
