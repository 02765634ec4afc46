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

// Apply writes into node what in says: its status, and the annotation of its
// addresses. What an error concerns is left as it was, and the rest is written
// nevertheless. The events are to be told once the node's new state is known
// to others. It reads no clock and keeps nothing but seen; of in, slices and
// maps may be shared with the node afterwards.
func Apply(node *v1.Node, in *Inputs, seen *Seen, now time.Time) ([]Event, error) {
	s, at := &node.Status, metav1.NewTime(now)
	errs := []error{setAddresses(node, in.Addressing)}
	events := setMachine(node, in, seen)
	errs = append(errs, setVersions(node, in))
	s.DaemonEndpoints.KubeletEndpoint.Port = in.Port
	errs = append(errs, in.ImagesErr)
	s.Images = nil
	if in.ImagesErr == nil {
		s.Images = ShowImages(in.Images, in.MaxImages)
	}
	s.NodeInfo.OperatingSystem = cmp.Or(in.Facts.OS, runtime.GOOS)
	s.NodeInfo.Architecture = cmp.Or(in.Facts.Arch, runtime.GOARCH)
	s.RuntimeHandlers = in.Handlers
	if in.Features != nil {
		s.Features = in.Features
	}
	events = append(events, memoryPressure.set(node, in.MemoryPressure, at)...)
	events = append(events, diskPressure.set(node, in.DiskPressure, at)...)
	events = append(events, pidPressure.set(node, in.PIDPressure, at)...)
	events = append(events, setReady(node, in, at)...)
	if in.VolumesSynced {
		s.VolumesInUse = in.VolumesInUse
	}
	events = append(events, seen.schedulable(node)...)
	if in.Declared != nil {
		s.DeclaredFeatures = in.Declared
	}
	return events, errors.Join(errs...)
}

// setVersions writes what runs on the node.
func setVersions(node *v1.Node, in *Inputs) error {
	info := &node.Status.NodeInfo
	info.KubeProxyVersion = "" //nolint:staticcheck // it is deprecated, which is why it is cleared
	if in.FactsErr != nil {
		return fmt.Errorf("node info: %w", in.FactsErr)
	}
	info.KernelVersion, info.OSImage = in.Facts.Kernel, in.Facts.OSImage
	info.ContainerRuntimeVersion = cmp.Or(in.RuntimeName, "unknown") + "://" + cmp.Or(in.RuntimeVersion, "Unknown")
	info.KubeletVersion = in.Version
	return nil
}

// schedulable says when a node is cordoned or given free: also one that was
// cordoned when the agent started.
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

// SortedHandlers copies runtime handlers, sorted by name, so that a runtime
// that reports them in another order changes nothing.
func SortedHandlers(h []v1.NodeRuntimeHandler) []v1.NodeRuntimeHandler {
	out := slices.Clone(h)
	slices.SortStableFunc(out, func(a, b v1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
