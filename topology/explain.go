package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// maxShown bounds how many sets of nodes an explanation names.
const maxShown = 8

// Explain informs a person, in a line, how well the resources go together: which of
// them have no nodes, or none that they prefer, and otherwise which nodes are in
// question and which resources are against them. The text may change between
// releases: it is for messages and not for programs.
func (s Step) Explain() string {
	var parts []string
	var lists []numa.Hints // of those that prefer something in particular
	for _, h := range s.Hints {
		switch preferred := preferredBy(h); {
		case h.Any || slices.Contains(preferred, 0):
		case len(h.List) == 0:
			parts = append(parts, h.Resource+" cannot be served from any NUMA nodes")
		case len(preferred) == 0:
			parts = append(parts, fmt.Sprintf("%s can be served from NUMA nodes %s only, and prefers none of them", h.Resource, some(nodesOf(h.List))))
		default:
			lists = append(lists, h)
		}
	}
	// A single resource that prefers something is no conflict beside one that
	// cannot be served.
	if len(lists) > 0 && len(parts) == 0 || len(lists) > 1 {
		parts = append(parts, agreement(lists))
	}
	if len(parts) == 0 {
		return "all resources can be served from any NUMA nodes"
	}
	return strings.Join(parts, "; ")
}

// agreement reports sets that some resources prefer which of them do not. Sets come
// with the narrowest first, so that the cut of shorten leaves the likely ones.
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

// preferredBy returns the sets that a resource prefers. 0 among them is any.
func preferredBy(h numa.Hints) []numa.NodeSet {
	return nodesOf(slices.DeleteFunc(slices.Clone(h.List), func(h numa.Hint) bool { return !h.Preferred }))
}

// nodesOf returns the sets of hints, in their order.
func nodesOf(list []numa.Hint) []numa.NodeSet {
	sets := make([]numa.NodeSet, len(list))
	for i, h := range list {
		sets[i] = h.Nodes
	}
	return sets
}

// some names sets for a person.
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

// shorten joins words, maxShown of them at most, and says how many more there are.
func shorten(words []string, sep string) string {
	if n := len(words) - maxShown; n > 0 {
		words = append(slices.Clone(words[:maxShown]), fmt.Sprintf("%d more", n))
	}
	return strings.Join(words, sep)
}
