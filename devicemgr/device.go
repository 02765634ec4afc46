package devicemgr

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/numa"
)

// The values of the package: devices as plugins list them, and their additions to
// containers. Nothing here has a lock.

// Device is one device that a plugin offers.
type Device struct {
	// ID is unique among the devices of its resource.
	ID string
	// Only the health string "Healthy" of the API counts; anything else is
	// unhealthy.
	Healthy bool
	// Nodes are the NUMA nodes it is near to; 0 if it is near none in
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

// normal sorts a list by ID, so that equal sets of devices give equal lists. Left out are
// devices without an ID, those with an ID of more than maxID bytes, all but the last of
// several with one ID, and those beyond maxDevices. dropped is the number of devices left
// out. list is not changed.
func normal(list []Device) (sorted []Device, dropped int) {
	byID := func(a, b Device) int { return strings.Compare(a.ID, b.ID) }
	sorted = slices.Clone(list)
	// Stable, so that of several entries with one ID the last of the plugin's own
	// order counts.
	slices.SortStableFunc(sorted, byID)
	kept := sorted[:0]
	for i, d := range sorted {
		if d.ID != "" && len(d.ID) <= maxID && len(kept) < maxDevices && (i+1 == len(sorted) || sorted[i+1].ID != d.ID) {
			kept = append(kept, d)
		}
	}
	if len(kept) < len(sorted)/2 {
		kept = slices.Clone(kept) // frees the memory of the dropped ones
	} else {
		// The rest of the array would keep IDs of dropped devices alive.
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

// Attachment is the additions of devices to a container. Lists are sorted by their
// unique keys: variable names, paths in the container, CDI names. The answer of one
// plugin may repeat a path; merge resolves conflicts between resources.
type Attachment struct {
	Env         []v1.EnvVar       `json:"env,omitempty"` // literal values
	Mounts      []Mount           `json:"mounts,omitempty"`
	Nodes       []DeviceNode      `json:"nodes,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	CDI         []string          `json:"cdi,omitempty"` // fully qualified names
}

// Mount is a path of the host that is mounted in the container. The path comes from
// the plugin; only the runtime checks it.
type Mount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// DeviceNode is a device file of the host that is created in the container.
type DeviceNode struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	// Permissions are some of r, w and m (mknod), as in the devices cgroup.
	Permissions string `json:"permissions,omitempty"`
}

// merge adds the additions of another resource to a container. Existing entries are
// kept; conflicts lists the entries that were left out. The first resource wins and
// conflicts are no error, as in the kubelet.
func (a *Attachment) merge(b Attachment) (conflicts []string) {
	for _, e := range b.Env {
		switch i := slices.IndexFunc(a.Env, func(x v1.EnvVar) bool { return x.Name == e.Name }); {
		case i < 0:
			a.Env = append(a.Env, e)
		// The same variable with the same value from two plugins is no conflict.
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
		// A new map: b's belongs to a shared record.
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
	// A CDI name stands for the same edits whichever plugin gave it; duplicates are
	// dropped, as in the kubelet.
	for _, name := range b.CDI {
		if !slices.Contains(a.CDI, name) {
			a.CDI = append(a.CDI, name)
		}
	}
	a.sort()
	slices.Sort(conflicts)
	return conflicts
}

// sort makes the order independent of the plugin's maps: equal answers become equal
// records.
func (a *Attachment) sort() {
	slices.SortFunc(a.Env, func(x, y v1.EnvVar) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Mounts, func(x, y Mount) int { return strings.Compare(x.ContainerPath, y.ContainerPath) })
	slices.SortFunc(a.Nodes, func(x, y DeviceNode) int { return strings.Compare(x.ContainerPath, y.ContainerPath) })
	slices.Sort(a.CDI)
}
