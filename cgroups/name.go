package cgroups

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Name is a cgroup's place in the hierarchy, whoever drives it: the components
// from the root down. The root has none. Values are never changed in place;
// functions that extend one copy it.
type Name []string

// NameError is a component that cannot be part of a name: empty, or with a
// slash or an underscore in it.
type NameError struct{ Component string }

func (e *NameError) Error() string {
	return fmt.Sprintf("cgroup name component %q: want one or more characters other than / and _", e.Component)
}

// Child is the name below n. It shares nothing with n. A component may be
// neither empty nor hold a slash or an underscore, which stands for the dash in
// the names of systemd. A slash would reach into another cgroup.
func (n Name) Child(components ...string) (Name, error) {
	for _, c := range components {
		if c == "" || strings.ContainsAny(c, "/_") {
			return nil, &NameError{c}
		}
	}
	return slices.Concat(n, components), nil
}

// Cgroupfs is the path as cgroupfs has it.
func (n Name) Cgroupfs() string { return path.Clean("/" + strings.Join(n, "/")) }

// parseCgroupfs reads a path of cgroupfs. "/" and "" are the root. A slash at
// the end makes an empty last component, which Child and Systemd refuse.
func parseCgroupfs(s string) Name {
	s = strings.TrimPrefix(s, "/")
	if s == "" {
		return nil
	}
	return strings.Split(s, "/")
}

// Systemd is the path that systemd makes of the slice with that name:
// /a.slice/a-b.slice for a, b. Each slice is named by all components up to it,
// as systemd demands (systemd.slice(5)); dashes within a component become
// underscores, since the dash is what separates components.
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

// sliceSuffix is what the names of systemd's slices end in.
const sliceSuffix = ".slice"

// parseSystemd reads the last element of a path as the name of a slice. "/" is
// no slice: it is taken for a component of that name. It is the inverse of
// Systemd for every name but the root.
func parseSystemd(s string) Name {
	base := strings.TrimSuffix(path.Base(s), sliceSuffix)
	parts := strings.Split(base, "-")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "_", "-")
	}
	return parts
}

// unitOf is the slice of a path that systemd makes, and the slice that it is
// in. The root slice is called "-.slice".
func unitOf(p string) (unit, parent string) {
	unit, parent = path.Base(p), path.Base(path.Dir(p))
	if parent == "/" {
		parent = "-" + sliceSuffix
	}
	return unit, parent
}

// Both words are the kubelet's: other tools find pods by them.
const (
	nodeComponent = "kubepods"
	podPrefix     = "pod"
)

// tiers are the QoS classes that have a cgroup of their own. Guaranteed pods
// are in the node's.
var tiers = []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort}

// tree describes where the cgroups of a node are. It knows names only, and is the
// same for both drivers and versions.
type tree struct {
	node Name // of all pods
}

// newTree returns the tree below root, a path of cgroupfs. A slash at the end
// of root makes no difference.
func newTree(root string) tree {
	return tree{slices.Concat(parseCgroupfs(path.Clean("/"+root)), Name{nodeComponent})}
}

// tier is where the pods of a class are.
func (t tree) tier(class v1.PodQOSClass) Name {
	if slices.Contains(tiers, class) {
		return slices.Concat(t.node, Name{strings.ToLower(string(class))})
	}
	return t.node
}

// pod returns the name of a pod's cgroup. It returns a NameError for a UID that
// could be part of no name: pods of files and tests have UIDs of any form.
func (t tree) pod(class v1.PodQOSClass, uid types.UID) (Name, error) {
	if uid == "" {
		return nil, &NameError{podPrefix}
	}
	return t.tier(class).Child(podPrefix + string(uid))
}

// podOf returns which pod a name is the cgroup of. What is elsewhere, deeper, or
// not named like a pod's is none. It compares the whole parent, not only the
// depth: Sweep removes what this accepts, and other programs may have cgroups
// with the prefix too.
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
