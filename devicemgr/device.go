package devicemgr

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/numa"
)

// The values of this package: devices as plugins list them, and their additions to containers.
// They have no locks.

// Device is one device that a plugin offers.
type Device struct {
	// ID is unique among the devices of its resource.
	ID string
	// Healthy is true only for the health string "Healthy" of the API.
	Healthy bool
	// Nodes are the NUMA nodes near the device. It is 0 if the device is near no node in
	// particular.
	Nodes numa.NodeSet
}

// Limits of a list of devices.
const (
	// maxDevices limits the devices of a resource.
	maxDevices = 1 << 16
	// maxID limits the length of an ID, in bytes.
	maxID = 1 << 10
)

// normal sorts a list by ID, so that equal sets of devices give equal lists. It removes devices
// without an ID, devices with an ID of more than maxID bytes, duplicate IDs except the last, and
// devices beyond maxDevices. dropped is the number of removed devices. list is not modified.
func normal(list []Device) (sorted []Device, dropped int) {
	byID := func(a, b Device) int { return strings.Compare(a.ID, b.ID) }
	sorted = slices.Clone(list)
	// A stable sort, so that the last of several entries with one ID, in the plugin's order, is
	// kept.
	slices.SortStableFunc(sorted, byID)
	kept := sorted[:0]
	for i, d := range sorted {
		if d.ID != "" && len(d.ID) <= maxID && len(kept) < maxDevices && (i+1 == len(sorted) || sorted[i+1].ID != d.ID) {
			kept = append(kept, d)
		}
	}
	if len(kept) < len(sorted)/2 {
		kept = slices.Clone(kept) // frees the memory of removed devices
	} else {
		// Otherwise the end of the array would keep the IDs of removed devices in memory.
		clear(sorted[len(kept):])
	}
	return kept, len(list) - len(kept)
}

// find searches a sorted list by ID.
func find(list []Device, id string) (Device, bool) {
	i, ok := slices.BinarySearchFunc(list, id, func(d Device, id string) int { return strings.Compare(d.ID, id) })
	if !ok {
		return Device{}, false
	}
	return list[i], true
}

// anyNear reports whether any device has NUMA nodes. A resource without such a device has no
// topology hints.
func anyNear(list []Device) bool {
	return slices.ContainsFunc(list, func(d Device) bool { return d.Nodes != 0 })
}

// Attachment has the additions of devices to a container. Lists are sorted by their unique keys:
// variable names, paths in the container, CDI names. The answer of one plugin may contain a path
// twice. merge resolves conflicts between resources.
type Attachment struct {
	Env         []v1.EnvVar       `json:"env,omitempty"` // literal values
	Mounts      []Mount           `json:"mounts,omitempty"`
	Nodes       []DeviceNode      `json:"nodes,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	CDI         []string          `json:"cdi,omitempty"` // fully qualified names
}

// Mount is a path of the host to mount in the container. The path comes from the plugin; only the
// runtime checks it.
type Mount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// DeviceNode is a device file of the host to create in the container.
type DeviceNode struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	// Permissions are some of r, w and m (mknod), as in the devices cgroup.
	Permissions string `json:"permissions,omitempty"`
}

// merge adds the additions of another resource to a container. Existing entries are kept;
// conflicts lists the entries that were dropped. As in the kubelet, the first resource wins, and
// a conflict is not an error.
func (a *Attachment) merge(b Attachment) (conflicts []string) {
	for _, e := range b.Env {
		switch i := slices.IndexFunc(a.Env, func(x v1.EnvVar) bool { return x.Name == e.Name }); {
		case i < 0:
			a.Env = append(a.Env, e)
		// The same variable with the same value from two plugins is not a conflict.
		case a.Env[i].Value != e.Value:
			conflicts = append(conflicts, "variable "+e.Name)
		}
	}
	for _, m := range b.Mounts {
		switch i := slices.IndexFunc(a.Mounts, func(x Mount) bool { return x.ContainerPath == m.ContainerPath }); {
		case i < 0:
			a.Mounts = append(a.Mounts, m)
		case a.Mounts[i] != m:
			conflicts = append(conflicts, "mount "+m.ContainerPath)
		}
	}
	for _, d := range b.Nodes {
		switch i := slices.IndexFunc(a.Nodes, func(x DeviceNode) bool { return x.ContainerPath == d.ContainerPath }); {
		case i < 0:
			a.Nodes = append(a.Nodes, d)
		case a.Nodes[i] != d:
			conflicts = append(conflicts, "device "+d.ContainerPath)
		}
	}
	for k, v := range b.Annotations {
		// A new map, since b's belongs to a shared record.
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		switch has, ok := a.Annotations[k]; {
		case !ok:
			a.Annotations[k] = v
		case has != v:
			conflicts = append(conflicts, "annotation "+k)
		}
	}
	// A CDI name means the same edits whichever plugin returned it. As in the kubelet, duplicates
	// are dropped.
	for _, name := range b.CDI {
		if !slices.Contains(a.CDI, name) {
			a.CDI = append(a.CDI, name)
		}
	}
	a.sort()
	slices.Sort(conflicts)
	return conflicts
}

// sort makes the order independent of maps in the plugin's answer, so that equal answers become
// equal records.
func (a *Attachment) sort() {
	slices.SortFunc(a.Env, func(x, y v1.EnvVar) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Mounts, func(x, y Mount) int { return strings.Compare(x.ContainerPath, y.ContainerPath) })
	slices.SortFunc(a.Nodes, func(x, y DeviceNode) int { return strings.Compare(x.ContainerPath, y.ContainerPath) })
	slices.Sort(a.CDI)
}
