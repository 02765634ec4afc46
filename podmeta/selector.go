package podmeta

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// SelectsNode reports whether a node with that name and these labels matches one of the
// terms of a node selector. An empty term, and one that the API would refuse, match no
// node.
func SelectsNode(terms []v1.NodeSelectorTerm, name string, labels map[string]string) bool {
	fields := map[string]string{"metadata.name": name}
	return slices.ContainsFunc(terms, func(t v1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && meets(labels, t.MatchExpressions) && meets(fields, t.MatchFields)
	})
}

// meets reports whether the labels satisfy all requirements.
func meets(labels map[string]string, requirements []v1.NodeSelectorRequirement) bool {
	return !slices.ContainsFunc(requirements, func(w v1.NodeSelectorRequirement) bool {
		value, has := labels[w.Key]
		return !meetsOne(value, has, w)
	})
}

func meetsOne(value string, has bool, w v1.NodeSelectorRequirement) bool {
	switch w.Operator {
	case v1.NodeSelectorOpIn:
		return has && slices.Contains(w.Values, value)
	case v1.NodeSelectorOpNotIn: // a label that is not there is none of the values
		return len(w.Values) > 0 && (!has || !slices.Contains(w.Values, value))
	case v1.NodeSelectorOpExists:
		return has && len(w.Values) == 0
	case v1.NodeSelectorOpDoesNotExist:
		return !has && len(w.Values) == 0
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(w.Values) != 1 {
			return false
		}
		n, err := strconv.ParseInt(value, 10, 64)
		bound, berr := strconv.ParseInt(w.Values[0], 10, 64)
		if !has || err != nil || berr != nil {
			return false
		}
		return w.Operator == v1.NodeSelectorOpGt && n > bound || w.Operator == v1.NodeSelectorOpLt && n < bound
	}
	return false
}
