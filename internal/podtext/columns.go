package podtext

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
)

// Column is a column of a table of objects of one kind.
type Column struct {
	Name, Type string // Type is string or integer
	Wide       bool   // shown only with -o wide
	Cell       func(o metav1.Object, now time.Time) any
}

// Text returns a column of type string.
func Text(name string, cell func(o metav1.Object) any) Column {
	return Column{Name: name, Type: "string", Cell: func(o metav1.Object, _ time.Time) any { return cell(o) }}
}

func number(name string, cell func(o metav1.Object) any) Column {
	c := Text(name, cell)
	c.Type = "integer"
	return c
}

func wide(c Column) Column {
	c.Wide = true
	return c
}

// Columns of most kinds.
var (
	NameColumn = Column{Name: "Name", Type: "string", Cell: func(o metav1.Object, _ time.Time) any { return o.GetName() }}
	AgeColumn  = Column{Name: "Age", Type: "string", Cell: func(o metav1.Object, now time.Time) any { return age(o.GetCreationTimestamp(), now) }}
)

// age returns the time since at in kubectl's format, or <unknown> for the zero time.
func age(at metav1.Time, now time.Time) string {
	if at.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(at.Time))
}

// ConfigMaps are the columns of a table of ConfigMaps.
var ConfigMaps = []Column{
	NameColumn,
	number("Data", func(o metav1.Object) any { c := o.(*v1.ConfigMap); return int64(len(c.Data) + len(c.BinaryData)) }),
	AgeColumn,
}

// Secrets are the columns of a table of Secrets.
var Secrets = []Column{
	NameColumn,
	Text("Type", func(o metav1.Object) any { return string(o.(*v1.Secret).Type) }),
	number("Data", func(o metav1.Object) any { return int64(len(o.(*v1.Secret).Data)) }),
	AgeColumn,
}

// Namespaces are the columns of a table of namespaces.
var Namespaces = []Column{
	NameColumn,
	Text("Status", func(o metav1.Object) any { return string(o.(*v1.Namespace).Status.Phase) }),
	AgeColumn,
}

// Events are the columns of a table of events.
var Events = []Column{
	{Name: "Last Seen", Type: "string", Cell: func(o metav1.Object, now time.Time) any {
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
	Text("Type", func(o metav1.Object) any { return o.(*v1.Event).Type }),
	Text("Reason", func(o metav1.Object) any { return o.(*v1.Event).Reason }),
	Text("Object", func(o metav1.Object) any {
		about := o.(*v1.Event).InvolvedObject
		return strings.ToLower(about.Kind) + "/" + about.Name
	}),
	wide(Text("Subobject", func(o metav1.Object) any { return o.(*v1.Event).InvolvedObject.FieldPath })),
	wide(Text("Source", func(o metav1.Object) any {
		e := o.(*v1.Event)
		if e.Source.Component == "" {
			return strings.Trim(e.ReportingController+", "+e.ReportingInstance, ", ")
		}
		return strings.Trim(e.Source.Component+", "+e.Source.Host, ", ")
	})),
	Text("Message", func(o metav1.Object) any { return strings.TrimSpace(o.(*v1.Event).Message) }),
	wide(Column{Name: "First Seen", Type: "string", Cell: func(o metav1.Object, now time.Time) any { return age(firstSeen(o.(*v1.Event)), now) }}),
	wide(number("Count", func(o metav1.Object) any {
		e := o.(*v1.Event)
		if e.Series != nil {
			return int64(e.Series.Count)
		}
		return int64(max(e.Count, 1))
	})),
	wide(NameColumn),
}

// firstSeen returns the time of the first occurrence of an event. It supports both event APIs.
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

func unsetOr(s string) string { return cmp.Or(s, "<unset>") }

// Claims are the columns of a table of PersistentVolumeClaims.
var Claims = []Column{
	NameColumn,
	Text("Status", func(o metav1.Object) any {
		if o.GetDeletionTimestamp() != nil {
			return "Terminating"
		}
		return string(o.(*v1.PersistentVolumeClaim).Status.Phase)
	}),
	Text("Volume", func(o metav1.Object) any { return o.(*v1.PersistentVolumeClaim).Spec.VolumeName }),
	Text("Capacity", func(o metav1.Object) any { return storageOf(o.(*v1.PersistentVolumeClaim).Status.Capacity) }),
	Text("Access Modes", func(o metav1.Object) any { return modes(o.(*v1.PersistentVolumeClaim).Status.AccessModes) }),
	Text("StorageClass", func(o metav1.Object) any { return ptr.Deref(o.(*v1.PersistentVolumeClaim).Spec.StorageClassName, "") }),
	Text("VolumeAttributesClass", func(o metav1.Object) any {
		return unsetOr(ptr.Deref(o.(*v1.PersistentVolumeClaim).Spec.VolumeAttributesClassName, ""))
	}),
	AgeColumn,
	wide(Text("VolumeMode", func(o metav1.Object) any { return string(ptr.Deref(o.(*v1.PersistentVolumeClaim).Spec.VolumeMode, "")) })),
}

// Volumes are the columns of a table of PersistentVolumes.
var Volumes = []Column{
	NameColumn,
	Text("Capacity", func(o metav1.Object) any { return storageOf(o.(*v1.PersistentVolume).Spec.Capacity) }),
	Text("Access Modes", func(o metav1.Object) any { return modes(o.(*v1.PersistentVolume).Spec.AccessModes) }),
	Text("Reclaim Policy", func(o metav1.Object) any { return string(o.(*v1.PersistentVolume).Spec.PersistentVolumeReclaimPolicy) }),
	Text("Status", func(o metav1.Object) any {
		if o.GetDeletionTimestamp() != nil {
			return "Terminating"
		}
		return string(o.(*v1.PersistentVolume).Status.Phase)
	}),
	Text("Claim", func(o metav1.Object) any {
		if r := o.(*v1.PersistentVolume).Spec.ClaimRef; r != nil {
			return r.Namespace + "/" + r.Name
		}
		return ""
	}),
	Text("StorageClass", func(o metav1.Object) any { return o.(*v1.PersistentVolume).Spec.StorageClassName }),
	Text("VolumeAttributesClass", func(o metav1.Object) any {
		return unsetOr(ptr.Deref(o.(*v1.PersistentVolume).Spec.VolumeAttributesClassName, ""))
	}),
	Text("Reason", func(o metav1.Object) any { return o.(*v1.PersistentVolume).Status.Reason }),
	AgeColumn,
	wide(Text("VolumeMode", func(o metav1.Object) any { return string(ptr.Deref(o.(*v1.PersistentVolume).Spec.VolumeMode, "")) })),
}

// Nodes are the columns of a table of nodes.
var Nodes = []Column{
	NameColumn,
	Text("Status", func(o metav1.Object) any { return NodeStatus(o.(*v1.Node)) }),
	Text("Roles", func(o metav1.Object) any {
		var roles []string
		for _, l := range slices.Sorted(maps.Keys(o.GetLabels())) {
			if r, ok := strings.CutPrefix(l, "node-role.kubernetes.io/"); ok && r != "" {
				roles = append(roles, r)
			}
		}
		return cmp.Or(strings.Join(roles, ","), none)
	}),
	AgeColumn,
	Text("Version", func(o metav1.Object) any { return o.(*v1.Node).Status.NodeInfo.KubeletVersion }),
	wide(Text("Internal-IP", func(o metav1.Object) any { return address(o.(*v1.Node), v1.NodeInternalIP) })),
	wide(Text("External-IP", func(o metav1.Object) any { return address(o.(*v1.Node), v1.NodeExternalIP) })),
	wide(Text("OS-Image", func(o metav1.Object) any { return cmp.Or(o.(*v1.Node).Status.NodeInfo.OSImage, unknown) })),
	wide(Text("Kernel-Version", func(o metav1.Object) any { return cmp.Or(o.(*v1.Node).Status.NodeInfo.KernelVersion, unknown) })),
	wide(Text("Container-Runtime", func(o metav1.Object) any {
		return cmp.Or(o.(*v1.Node).Status.NodeInfo.ContainerRuntimeVersion, unknown)
	})),
}

// unknown is printed if a value is missing that every object should have.
const unknown = "<unknown>"

// NodeStatus returns the status of a node as kubectl prints it, such as Ready,SchedulingDisabled.
func NodeStatus(n *v1.Node) string {
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

// Pods are kubectl's columns of a table of pods.
var Pods = PodsWith(nil)

// Extra has facts about a pod that are not in its object.
type Extra struct {
	Evictions Evictions // the column Restarts includes them
	Pull      string    // progress of the pull for which the pod waits; "" if there is none
}

// PodsWith returns the columns of a table of pods. extra returns the Extra of the pod with a UID, and
// may be nil.
func PodsWith(extra func(types.UID) Extra) []Column {
	of := func(p *v1.Pod) (e Extra) {
		if extra != nil {
			e = extra(p.UID)
		}
		return e
	}
	return []Column{
		NameColumn,
		Text("Ready", func(o metav1.Object) any { ready, all := readyOf(o.(*v1.Pod)); return fmt.Sprintf("%d/%d", ready, all) }),
		Text("Status", func(o metav1.Object) any {
			p := o.(*v1.Pod)
			if pull := of(p).Pull; pull != "" && p.Status.Phase == v1.PodPending && p.DeletionTimestamp == nil {
				return "Pulling (" + pull + ")"
			}
			return State(p)
		}),
		{Name: "Restarts", Type: "string", Cell: func(o metav1.Object, now time.Time) any {
			p := o.(*v1.Pod)
			return restarts(p, of(p).Evictions, now)
		}},
		{Name: "Age", Type: "string", Cell: func(o metav1.Object, now time.Time) any { return Age(o.(*v1.Pod), now) }},
		wide(Text("IP", func(o metav1.Object) any { return cmp.Or(o.(*v1.Pod).Status.PodIP, none) })),
		wide(Text("Node", func(o metav1.Object) any { return cmp.Or(o.(*v1.Pod).Spec.NodeName, none) })),
		wide(Text("Nominated Node", func(o metav1.Object) any { return cmp.Or(o.(*v1.Pod).Status.NominatedNodeName, none) })),
		wide(Text("Readiness Gates", func(o metav1.Object) any { return gates(o.(*v1.Pod)) })),
	}
}
