package status

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sameInputs reports whether two Inputs give the same status. Errors are compared
// by their texts, since callers may wrap errors anew each time. It is called every
// few seconds and, unlike reflect.DeepEqual, does not allocate;
// TestEveryInputCounts checks that every field is compared.
func sameInputs(a, b *Inputs) bool {
	return sameAddressing(&a.Addressing, &b.Addressing) &&
		a.MaxPods == b.MaxPods && a.PodsPerCore == b.PodsPerCore && sameList(a.Reserved, b.Reserved) && a.LocalStorage == b.LocalStorage &&
		sameFacts(&a.Facts, &b.Facts) && sameText(a.FactsErr, b.FactsErr) && sameDevices(&a.Devices, &b.Devices) &&
		a.Version == b.Version && a.Port == b.Port &&
		sameImages(a.Images, b.Images) && sameText(a.ImagesErr, b.ImagesErr) && a.MaxImages == b.MaxImages &&
		a.RuntimeName == b.RuntimeName && a.RuntimeVersion == b.RuntimeVersion &&
		slices.EqualFunc(a.Handlers, b.Handlers, sameHandler) && sameFeatures(a.Features, b.Features) &&
		a.MemoryPressure == b.MemoryPressure && a.DiskPressure == b.DiskPressure && a.PIDPressure == b.PIDPressure &&
		sameProblems(&a.Problems, &b.Problems) && slices.Equal(a.Warnings, b.Warnings) &&
		slices.Equal(a.VolumesInUse, b.VolumesInUse) && a.VolumesSynced == b.VolumesSynced &&
		slices.Equal(a.Declared, b.Declared) && (a.Declared == nil) == (b.Declared == nil)
}

func sameAddressing(a, b *Addressing) bool {
	return a.Hostname == b.Hostname && slices.Equal(a.NodeIPs, b.NodeIPs) && a.External == b.External &&
		slices.Equal(a.Host, b.Host) && slices.Equal(a.Resolved, b.Resolved) && a.Default4 == b.Default4 && a.Default6 == b.Default6
}

func sameFacts(a, b *Facts) bool {
	return sameList(a.Capacity, b.Capacity) && a.Swap == b.Swap && a.MachineID == b.MachineID && a.SystemUUID == b.SystemUUID &&
		a.BootID == b.BootID && a.Kernel == b.Kernel && a.OSImage == b.OSImage && a.OS == b.OS && a.Arch == b.Arch
}

func sameDevices(a, b *Devices) bool {
	return sameList(a.Capacity, b.Capacity) && sameList(a.Allocatable, b.Allocatable) && slices.Equal(a.Gone, b.Gone)
}

func sameProblems(a, b *Problems) bool {
	return sameText(a.Runtime, b.Runtime) && sameText(a.Network, b.Network) && sameText(a.Storage, b.Storage) &&
		sameText(a.Shutdown, b.Shutdown) && a.Beginning == b.Beginning
}

// sameImages reports whether two lists of images are equal. Lists that share their array are equal
// without a comparison, since there may be a thousand images.
func sameImages(a, b []v1.ContainerImage) bool {
	if len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] {
		return true
	}
	return slices.EqualFunc(a, b, func(a, b v1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	})
}

func sameHandler(a, b v1.NodeRuntimeHandler) bool {
	if a.Name != b.Name || a.Features == nil || b.Features == nil {
		return a.Name == b.Name && a.Features == b.Features
	}
	return same(a.Features.RecursiveReadOnlyMounts, b.Features.RecursiveReadOnlyMounts) && same(a.Features.UserNamespaces, b.Features.UserNamespaces)
}

func sameFeatures(a, b *v1.NodeFeatures) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a.SupplementalGroupsPolicy, b.SupplementalGroupsPolicy)
}

func sameList(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 && a.Format == b.Format })
}

func sameText(a, b error) bool {
	return text(a) == text(b)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
