package podworker

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// names describes which static pod has a full name, and who waits for it. It is
// guarded by the lock of the workers, as all of core. A name that nobody has or
// wants has no entry.
type names map[string]*nameClaim

// nameClaim is who has one full name, and who waits for it.
type nameClaim struct {
	holder  types.UID   // "" if nobody
	waiting []types.UID // in the order of their first update
}

// join puts a static pod in line for its name.
func (n names) join(fullName string, uid types.UID) {
	c := n[fullName]
	if c == nil {
		c = &nameClaim{}
		n[fullName] = c
	}
	// A UID is in the line once: core joins only at its first sight.
	c.waiting = append(c.waiting, uid)
}

// holder is the pod that has a name, or "".
func (n names) holder(fullName string) types.UID {
	if c := n[fullName]; c != nil {
		return c.holder
	}
	return ""
}

// claim gives a pod its name if nobody has it and nobody came before who may
// begin. Otherwise it says for whom the pod waits.
func (n names) claim(fullName string, uid types.UID, mayBegin func(types.UID) bool) (ok bool, waitFor string) {
	c := n[fullName]
	switch {
	case c == nil || c.holder == uid:
		return true, ""
	case c.holder != "":
		return false, "the end of the pod of the same name with UID " + string(c.holder)
	}
	if first := c.first(mayBegin); first != "" && first != uid {
		return false, "a pod of the same name that came before it"
	}
	c.holder = uid
	c.drop(uid)
	return true, ""
}

// free takes a pod out of line, or its name from it, and returns the next in
// line if the name is free. The caller has to give it the name: free itself
// changes nothing for that pod.
func (n names) free(fullName string, uid types.UID, mayBegin func(types.UID) bool) (next types.UID) {
	c := n[fullName]
	if c == nil {
		return ""
	}
	c.drop(uid)
	if c.holder == uid {
		c.holder = ""
	}
	if c.holder != "" {
		return ""
	}
	if next = c.first(mayBegin); next == "" {
		delete(n, fullName)
	}
	return next
}

// drop takes a pod out of line.
func (c *nameClaim) drop(uid types.UID) {
	c.waiting = slices.DeleteFunc(c.waiting, func(u types.UID) bool { return u == uid })
}

// first drops those that will never begin and returns the first other. A pod
// whose end was asked for before it began would hold up all after it.
func (c *nameClaim) first(mayBegin func(types.UID) bool) types.UID {
	for len(c.waiting) > 0 {
		if mayBegin(c.waiting[0]) {
			return c.waiting[0]
		}
		c.waiting = c.waiting[1:]
	}
	return ""
}
