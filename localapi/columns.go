package localapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var configMapColumns = []column{
	nameColumn,
	number("Data", func(o object) any { c := o.(*v1.ConfigMap); return int64(len(c.Data) + len(c.BinaryData)) }),
	ageColumn,
}

var secretColumns = []column{
	nameColumn,
	text("Type", func(o object) any { return string(o.(*v1.Secret).Type) }),
	number("Data", func(o object) any { return int64(len(o.(*v1.Secret).Data)) }),
	ageColumn,
}

var namespaceColumns = []column{
	nameColumn,
	text("Status", func(o object) any { return string(o.(*v1.Namespace).Status.Phase) }),
	ageColumn,
}

var leaseColumns = []column{
	nameColumn,
	text("Holder", func(o object) any {
		if h := o.(*coordinationv1.Lease).Spec.HolderIdentity; h != nil {
			return *h
		}
		return ""
	}),
	ageColumn,
}

var resourceClaimColumns = []column{
	nameColumn,
	text("State", func(o object) any {
		c := o.(*resourcev1.ResourceClaim)
		var states []string
		if c.DeletionTimestamp != nil {
			states = append(states, "deleted")
		}
		if c.Status.Allocation != nil {
			states = append(states, "allocated")
		} else if c.DeletionTimestamp == nil {
			states = append(states, "pending")
		}
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
		return strings.Join(states, ",")
	}),
	ageColumn,
}

var eventColumns = []column{
	{name: "Last Seen", kind: "string", cell: func(o object, now time.Time) any {
		e := o.(*v1.Event)
		switch {
		case e.Series != nil:
			return age(metav1.NewTime(e.Series.LastObservedTime.Time), now)
		case !e.LastTimestamp.IsZero():
			return age(e.LastTimestamp, now)
		default:
			return age(firstSeen(e), now)
		}
	}},
	text("Type", func(o object) any { return o.(*v1.Event).Type }),
	text("Reason", func(o object) any { return o.(*v1.Event).Reason }),
	text("Object", func(o object) any {
		about := o.(*v1.Event).InvolvedObject
		return strings.ToLower(about.Kind) + "/" + about.Name
	}),
	wide(text("Subobject", func(o object) any { return o.(*v1.Event).InvolvedObject.FieldPath })),
	wide(text("Source", func(o object) any {
		e := o.(*v1.Event)
		if e.Source.Component == "" {
			return strings.Trim(e.ReportingController+", "+e.ReportingInstance, ", ")
		}
		return strings.Trim(e.Source.Component+", "+e.Source.Host, ", ")
	})),
	text("Message", func(o object) any { return strings.TrimSpace(o.(*v1.Event).Message) }),
	wide(column{name: "First Seen", kind: "string", cell: func(o object, now time.Time) any { return age(firstSeen(o.(*v1.Event)), now) }}),
	wide(number("Count", func(o object) any {
		e := o.(*v1.Event)
		if e.Series != nil {
			return int64(e.Series.Count)
		}
		return int64(max(e.Count, 1))
	})),
	wide(nameColumn),
}

// firstSeen is when an event was first, in either form of events.
func firstSeen(e *v1.Event) metav1.Time {
	if e.FirstTimestamp.IsZero() {
		return metav1.NewTime(e.EventTime.Time)
	}
	return e.FirstTimestamp
}

func modes(list []v1.PersistentVolumeAccessMode) string {
	short := map[v1.PersistentVolumeAccessMode]string{
		v1.ReadWriteOnce: "RWO", v1.ReadOnlyMany: "ROX", v1.ReadWriteMany: "RWX", v1.ReadWriteOncePod: "RWOP",
	}
	var out []string
	for _, m := range list {
		out = append(out, cmp.Or(short[m], string(m)))
	}
	return strings.Join(out, ",")
}

func storageOf(list v1.ResourceList) string {
	if q, ok := list[v1.ResourceStorage]; ok {
		return q.String()
	}
	return ""
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func unsetOr(s string) string { return cmp.Or(s, "<unset>") }

var claimColumns = []column{
	nameColumn,
	text("Status", func(o object) any {
		if o.GetDeletionTimestamp() != nil {
			return "Terminating"
		}
		return string(o.(*v1.PersistentVolumeClaim).Status.Phase)
	}),
	text("Volume", func(o object) any { return o.(*v1.PersistentVolumeClaim).Spec.VolumeName }),
	text("Capacity", func(o object) any { return storageOf(o.(*v1.PersistentVolumeClaim).Status.Capacity) }),
	text("Access Modes", func(o object) any { return modes(o.(*v1.PersistentVolumeClaim).Status.AccessModes) }),
	text("StorageClass", func(o object) any { return deref(o.(*v1.PersistentVolumeClaim).Spec.StorageClassName) }),
	text("VolumeAttributesClass", func(o object) any {
		return unsetOr(deref(o.(*v1.PersistentVolumeClaim).Spec.VolumeAttributesClassName))
	}),
	ageColumn,
	wide(text("VolumeMode", func(o object) any { return string(deref(o.(*v1.PersistentVolumeClaim).Spec.VolumeMode)) })),
}

var volumeColumns = []column{
	nameColumn,
	text("Capacity", func(o object) any { return storageOf(o.(*v1.PersistentVolume).Spec.Capacity) }),
	text("Access Modes", func(o object) any { return modes(o.(*v1.PersistentVolume).Spec.AccessModes) }),
	text("Reclaim Policy", func(o object) any { return string(o.(*v1.PersistentVolume).Spec.PersistentVolumeReclaimPolicy) }),
	text("Status", func(o object) any {
		if o.GetDeletionTimestamp() != nil {
			return "Terminating"
		}
		return string(o.(*v1.PersistentVolume).Status.Phase)
	}),
	text("Claim", func(o object) any {
		if r := o.(*v1.PersistentVolume).Spec.ClaimRef; r != nil {
			return r.Namespace + "/" + r.Name
		}
		return ""
	}),
	text("StorageClass", func(o object) any { return o.(*v1.PersistentVolume).Spec.StorageClassName }),
	text("VolumeAttributesClass", func(o object) any {
		return unsetOr(deref(o.(*v1.PersistentVolume).Spec.VolumeAttributesClassName))
	}),
	text("Reason", func(o object) any { return o.(*v1.PersistentVolume).Status.Reason }),
	ageColumn,
	wide(text("VolumeMode", func(o object) any { return string(deref(o.(*v1.PersistentVolume).Spec.VolumeMode)) })),
}

var nodeColumns = []column{
	nameColumn,
	text("Status", func(o object) any { return nodeStatus(o.(*v1.Node)) }),
	text("Roles", func(o object) any {
		var roles []string
		for _, l := range slices.Sorted(maps.Keys(o.GetLabels())) {
			if r, ok := strings.CutPrefix(l, "node-role.kubernetes.io/"); ok && r != "" {
				roles = append(roles, r)
			}
		}
		return cmp.Or(strings.Join(roles, ","), none)
	}),
	ageColumn,
	text("Version", func(o object) any { return o.(*v1.Node).Status.NodeInfo.KubeletVersion }),
	wide(text("Internal-IP", func(o object) any { return address(o.(*v1.Node), v1.NodeInternalIP) })),
	wide(text("External-IP", func(o object) any { return address(o.(*v1.Node), v1.NodeExternalIP) })),
	wide(text("OS-Image", func(o object) any { return cmp.Or(o.(*v1.Node).Status.NodeInfo.OSImage, unknown) })),
	wide(text("Kernel-Version", func(o object) any { return cmp.Or(o.(*v1.Node).Status.NodeInfo.KernelVersion, unknown) })),
	wide(text("Container-Runtime", func(o object) any { return cmp.Or(o.(*v1.Node).Status.NodeInfo.ContainerRuntimeVersion, unknown) })),
}

// What kubectl's tables have where there is nothing.
const (
	none    = "<none>"
	unknown = "<unknown>"
)

func nodeStatus(n *v1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != v1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == v1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func address(n *v1.Node, t v1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return none
}

var podColumns = []column{
	nameColumn,
	text("Ready", func(o object) any { ready, all := readyOf(o.(*v1.Pod)); return fmt.Sprintf("%d/%d", ready, all) }),
	text("Status", func(o object) any { return podStatus(o.(*v1.Pod)) }),
	{name: "Restarts", kind: "string", cell: func(o object, now time.Time) any { return restarts(o.(*v1.Pod), now) }},
	ageColumn,
	wide(text("IP", func(o object) any { return cmp.Or(o.(*v1.Pod).Status.PodIP, none) })),
	wide(text("Node", func(o object) any { return cmp.Or(o.(*v1.Pod).Spec.NodeName, none) })),
	wide(text("Nominated Node", func(o object) any { return cmp.Or(o.(*v1.Pod).Status.NominatedNodeName, none) })),
	wide(text("Readiness Gates", func(o object) any { return gates(o.(*v1.Pod)) })),
}
