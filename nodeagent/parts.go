package nodeagent

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"

	"github.com/nodewright/nodewright/agent/part"
)

// Maker makes a part of a node. It returns nil if this node does not need the part. It may read
// and change the Facts of the Builder.
type Maker func(*Builder) (part.Part, error)

// name returns the name of the maker's function, such as nodeagent.Eviction.
func (m Maker) name() string {
	return path.Base(runtime.FuncForPC(reflect.ValueOf(m).Pointer()).Name())
}

// Standard returns the makers of this package in the right order: dependencies come
// first, and hooks are called in the kubelet's order.
func Standard() []Maker { return StandardWithout() }

// StandardWithout returns [Standard] without the makers of the parts with these names. If a name
// is unknown, [New] fails. The code of omitted parts is still linked; to avoid that, list single
// makers.
func StandardWithout(names ...string) []Maker {
	var list []Maker
	for _, m := range []struct {
		name string
		make Maker
	}{
		// Comes first, so that it sees pods as soon as they are added.
		{"podstart", PodStarts},
		// Stats and collection are needed by eviction.
		{"stats", Stats}, {"collection", Collection}, {"eviction", Eviction}, {"preemption", Preemption}, {"shutdown", Shutdown},
		// Before the parts that reserve resources for a pod.
		{"startorder", StartOrder},
		// Devices take part in the decisions of placement.
		{"devices", Devices}, {"placement", Placement}, {"claims", Claims},
		// These use earlier parts.
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

// With returns a Maker of an existing part. Use the Maker for one node only, since a
// part belongs to one agent.
func With(p part.Part) Maker {
	return func(*Builder) (part.Part, error) { return p, nil }
}

// make calls the makers in order. It returns the errors of all makers, and an error for each
// [Fact] that was given after an earlier maker had needed it. If a maker fails, the later ones
// are called nevertheless, and Facts lack the values of the failed maker.
func (b *Builder) make(makers []Maker) ([]part.Part, error) {
	var parts []part.Part
	var errs []error
	for _, m := range makers {
		b.Facts.order.maker = m.name()
		p, err := m(b)
		errs = append(errs, err)
		if p != nil && err == nil {
			parts = append(parts, p)
		}
	}
	b.Facts.order.maker = ""
	return parts, errors.Join(append(errs, b.Facts.order.errs...)...)
}
