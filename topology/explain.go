package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// maxShown limits the number of sets and resources that an explanation lists.
const maxShown = 8

// Explain describes in one line how the resources fit together. It names resources that no node
// can serve, or that can be served but prefer none of their nodes. If there are no such
// resources, it names the preferred nodes and the resources that do not prefer them. The text may
// change between releases; do not parse it.
func (s Step) Explain() string {
	var parts []string
	var lists []numa.Hints // of resources with a preference
	for _, h := range s.Hints {
		switch preferred := preferredBy(h); {
		case h.Any || slices.Contains(preferred, 0):
		case len(h.List) == 0:
			parts = append(parts, h.Resource+" cannot be served from any NUMA nodes")
		case len(preferred) == 0:
			parts = append(parts, fmt.Sprintf("%s can be served only from NUMA nodes %s, none of which it prefers", h.Resource, some(nodesOf(h.List))))
		default:
			lists = append(lists, h)
		}
	}
	// If another resource cannot be served, a single resource with a preference is not in
	// conflict.
	if len(lists) > 0 && len(parts) == 0 || len(lists) > 1 {
		parts = append(parts, agreement(lists))
	}
	if len(parts) == 0 {
		return "all resources can be served from any NUMA nodes"
	}
	return strings.Join(parts, "; ")
}

// agreement describes the sets that some resources prefer, and the resources that
// do not prefer them. The smallest sets are first, so that shorten cuts off the
// least likely ones.
func agreement(lists []numa.Hints) string {
	var sets []numa.NodeSet
	preferred := make([][]numa.NodeSet, len(lists))
	for i, h := range lists {
		preferred[i] = preferredBy(h)
		sets = append(sets, preferred[i]...)
	}
	slices.SortFunc(sets, func(a, b numa.NodeSet) int {
		return cmp.Or(cmp.Compare(a.Len(), b.Len()), cmp.Compare(a, b))
	})
	sets = slices.Compact(sets)
	var agreed, against []string
	for _, s := range sets {
		var not []string
		for i, h := range lists {
			if !slices.Contains(preferred[i], s) {
				not = append(not, h.Resource)
			}
		}
		if len(not) == 0 {
			agreed = append(agreed, s.String())
		} else {
			against = append(against, fmt.Sprintf("%s not by %s", s, strings.Join(not, ", ")))
		}
	}
	if len(agreed) > 0 {
		return "all prefer NUMA nodes " + shorten(agreed, " or ")
	}
	return "no NUMA nodes are preferred by all: " + shorten(against, ", ")
}

// preferredBy returns the sets that a resource prefers. A 0 among them means any nodes.
func preferredBy(h numa.Hints) []numa.NodeSet {
	return nodesOf(slices.DeleteFunc(slices.Clone(h.List), func(h numa.Hint) bool { return !h.Preferred }))
}

// nodesOf returns the node sets of hints, in the same order.
func nodesOf(list []numa.Hint) []numa.NodeSet {
	sets := make([]numa.NodeSet, len(list))
	for i, h := range list {
		sets[i] = h.Nodes
	}
	return sets
}

// some formats at most maxShown sets for a message, and the number of the others.
func some(sets []numa.NodeSet) string {
	words := make([]string, len(sets))
	for i, s := range sets {
		words[i] = s.String()
		if s == 0 {
			words[i] = "of any kind"
		}
	}
	return shorten(words, " or ")
}

// shorten joins at most maxShown words, and appends the number of the others.
func shorten(words []string, sep string) string {
	if n := len(words) - maxShown; n > 0 {
		words = append(slices.Clone(words[:maxShown]), fmt.Sprintf("%d more", n))
	}
	return strings.Join(words, sep)
}
