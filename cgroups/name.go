package cgroups

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Name is a cgroup's place in the hierarchy, independent of the driver: the
// components from the root down. The root has none. Values are never changed in
// place; functions that extend a Name copy it.
type Name []string

// NameError is a component that cannot be part of a name: empty, or with a slash or
// an underscore.
type NameError struct{ Component string }

func (e *NameError) Error() string {
	return fmt.Sprintf("cgroup name component %q: want one or more characters other than / and _", e.Component)
}

// Child returns the name below n. It shares no memory with n. A component must not be empty. It
// must not contain a slash, which would lead into another cgroup, nor an underscore, which stands
// for the dash in the names of systemd.
func (n Name) Child(components ...string) (Name, error) {
	for _, c := range components {
		if c == "" || strings.ContainsAny(c, "/_") {
			return nil, &NameError{c}
		}
	}
	return slices.Concat(n, components), nil
}

// Cgroupfs returns the path of n in the form of cgroupfs.
func (n Name) Cgroupfs() string { return path.Clean("/" + strings.Join(n, "/")) }

// parseCgroupfs reads a path of cgroupfs. "/" and "" are the root. A trailing slash
// makes an empty last component, which Child and Systemd refuse.
func parseCgroupfs(s string) Name {
	s = strings.TrimPrefix(s, "/")
	if s == "" {
		return nil
	}
	return strings.Split(s, "/")
}

// Systemd returns the path of the slice: /a.slice/a-b.slice for a, b. A slice's
// name contains all components up to it (systemd.slice(5)). Dashes within a
// component become underscores, since the dash separates components.
func (n Name) Systemd() (string, error) {
	if len(n) == 0 || len(n) == 1 && n[0] == "" {
		return "/", nil
	}
	var out, unit strings.Builder
	for i, c := range n {
		if c == "" || strings.ContainsAny(c, "/_") {
			return "", &NameError{c}
		}
		if i > 0 {
			unit.WriteByte('-')
		}
		unit.WriteString(strings.ReplaceAll(c, "-", "_"))
		out.WriteByte('/')
		out.WriteString(unit.String())
		out.WriteString(sliceSuffix)
	}
	return out.String(), nil
}

// sliceSuffix is the suffix of the names of systemd's slices.
const sliceSuffix = ".slice"

// parseSystemd reads the last element of a path as the name of a slice. It is the
// inverse of Systemd for every name but the root: "/" becomes a component of that
// name.
func parseSystemd(s string) Name {
	base := strings.TrimSuffix(path.Base(s), sliceSuffix)
	parts := strings.Split(base, "-")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "_", "-")
	}
	return parts
}

// unitOf returns the name of a systemd slice and the name of its parent. p is the path of the
// slice's cgroup. The root slice is called "-.slice".
func unitOf(p string) (unit, parent string) {
	unit, parent = path.Base(p), path.Base(path.Dir(p))
	if parent == "/" {
		parent = "-" + sliceSuffix
	}
	return unit, parent
}

// The names are the kubelet's, since other tools find pods by them.
const (
	nodeComponent = "kubepods"
	podPrefix     = "pod"
)

// tiers are the QoS classes that have a cgroup of their own. Guaranteed pods are
// directly in the node's.
var tiers = []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort}

// tree names the cgroups of a node. It is the same for both drivers and versions.
type tree struct {
	node Name // cgroup of all pods
}

// newTree returns the tree below root, a path of cgroupfs. A slash at the end
// of root makes no difference.
func newTree(root string) tree {
	return tree{slices.Concat(parseCgroupfs(path.Clean("/"+root)), Name{nodeComponent})}
}

// tier returns the cgroup that contains the pods of a class.
func (t tree) tier(class v1.PodQOSClass) Name {
	if slices.Contains(tiers, class) {
		return slices.Concat(t.node, Name{strings.ToLower(string(class))})
	}
	return t.node
}

// pod returns the name of a pod's cgroup, or a NameError for a UID that cannot be
// part of a name: pods of files and tests have UIDs of any form.
func (t tree) pod(class v1.PodQOSClass, uid types.UID) (Name, error) {
	if uid == "" {
		return nil, &NameError{podPrefix}
	}
	return t.tier(class).Child(podPrefix + string(uid))
}

// podOf returns the pod whose cgroup has the name n, and false if n is not the name of
// a pod's cgroup of this tree. It compares the whole parent, not only the depth, since
// Sweep removes the cgroups that podOf accepts, and other programs may use the prefix
// "pod" too.
func (t tree) podOf(n Name) (types.UID, v1.PodQOSClass, bool) {
	if len(n) == 0 {
		return "", "", false
	}
	parent, last := n[:len(n)-1], n[len(n)-1]
	uid, ok := strings.CutPrefix(last, podPrefix)
	if !ok || uid == "" || strings.ContainsAny(uid, "/_") {
		return "", "", false
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if slices.Equal(parent, t.tier(class)) {
			return types.UID(uid), class, true
		}
	}
	return "", "", false
}
