package nodeagent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/agent/part"
)

// Maker makes a part of a node. The Part is nil if this node does without it. A
// maker may read and change the Facts of the Builder.
type Maker func(*Builder) (part.Part, error)

// Standard lists the makers of this package in the order that suits them: what
// others need is made before them, and hooks are called in the kubelet's order.
func Standard() []Maker { return StandardWithout() }

// StandardWithout is [Standard] without the parts of these names. [New] fails if
// there is no part of a name. What is left out is linked nevertheless; list single
// makers to leave its code out as well.
func StandardWithout(names ...string) []Maker {
	var list []Maker
	for _, m := range []struct {
		name string
		make Maker
	}{
		// The first one sees pods as soon as they come.
		{"podstart", PodStarts},
		// Stats and collection have what eviction needs.
		{"stats", Stats}, {"collection", Collection}, {"eviction", Eviction}, {"preemption", Preemption}, {"shutdown", Shutdown},
		// Before those that reserve anything for a pod.
		{"startorder", StartOrder},
		// Devices take part in the decisions of placement.
		{"devices", Devices}, {"placement", Placement}, {"claims", Claims},
		// These serve what those before them have.
		{"plugins", Plugins}, {"podresources", PodResources},
		{"resize", Resize}, {"userns", UserNamespaces}, {"tokens", Tokens}, {"mirrors", Mirrors}, {"oom", OOM},
		{"swap", Swap}, {"hostsetup", HostSetup},
	} {
		if i := slices.Index(names, m.name); i >= 0 {
			names = slices.Delete(slices.Clone(names), i, i+1)
			continue
		}
		list = append(list, m.make)
	}
	for _, name := range names {
		list = append(list, func(*Builder) (part.Part, error) {
			return nil, fmt.Errorf("StandardWithout: there is no part %q, or it was named twice", name)
		})
	}
	return list
}

// With is the Maker of a part that is there already. It may be used for one node,
// as a part belongs to one agent.
func With(p part.Part) Maker {
	return func(*Builder) (part.Part, error) { return p, nil }
}

// make makes the parts in their order, and reports all mistakes at once. A maker is
// called even if one before it failed: it finds Facts without what that one would
// have added.
func (b *Builder) make(list []Maker) ([]part.Part, error) {
	var parts []part.Part
	var errs []error
	for _, m := range list {
		p, err := m(b)
		errs = append(errs, err)
		if p != nil && err == nil {
			parts = append(parts, p)
		}
	}
	return parts, errors.Join(errs...)
}
