package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nodewright/nodewright/numa"
)

// The options of policies, by the kubelet's names
// (topologyManagerPolicyOptions).
const (
	PreferClosest = "prefer-closest-numa-nodes"
	maxAllowable  = "max-allowable-numa-nodes"
)

// leastMaxAllowable is the kubelet's default and minimum of maxAllowable.
const leastMaxAllowable = 8

// Options configures the built-in policies.
type Options struct {
	// PreferClosest prefers, among sets of equal size, the one with the smaller average distance
	// between its nodes.
	PreferClosest bool
	// MaxNodes is the largest accepted number of NUMA nodes of a machine, at least 8. If it is 0,
	// the number is [numa.MaxNodes]. The kubelet limits it to 8 because its merging is slower.
	MaxNodes int
}

// ParseOptions parses options in the form of the kubelet's configuration. The error has all
// mistakes.
func ParseOptions(options map[string]string) (Options, error) {
	var o Options
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(options)) {
		value := options[name]
		switch name {
		case PreferClosest:
			b, err := strconv.ParseBool(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("option %s is %q; want true or false", name, value))
			}
			o.PreferClosest = b
		case maxAllowable:
			n, err := strconv.Atoi(value)
			if err != nil || n < leastMaxAllowable {
				errs = append(errs, fmt.Errorf("option %s is %q; want a number from %d on", name, value, leastMaxAllowable))
			}
			o.MaxNodes = n
		default:
			errs = append(errs, fmt.Errorf("option %q is not known; want %s or %s", name, PreferClosest, maxAllowable))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Options{}, err
	}
	return o, nil
}

// check returns an error if the machine does not meet the options. Policy none does not call it,
// since the kubelet ignores its options.
func (o Options) check(m numa.Machine) error {
	if o.MaxNodes != 0 && o.MaxNodes < leastMaxAllowable {
		return fmt.Errorf("Options.MaxNodes is %d; want 0, or at least %d", o.MaxNodes, leastMaxAllowable)
	}
	if o.MaxNodes != 0 && len(m.Nodes) > o.MaxNodes {
		return fmt.Errorf("the machine has %d NUMA nodes; %s allows %d", len(m.Nodes), maxAllowable, o.MaxNodes)
	}
	return nil
}
