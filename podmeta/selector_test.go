package podmeta

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSelectsNode(t *testing.T) {
	labels := map[string]string{"zone": "a", "cores": "16", "odd": "x1", "empty": ""}
	for _, c := range []struct {
		expression string // key operator values
		want       bool
	}{
		{"zone In a b", true},
		{"zone In b", false},
		{"zone In", false},
		{"gone In a", false},
		{"empty In", false},
		{"zone NotIn b", true},
		{"zone NotIn a b", false},
		{"zone NotIn", false},
		{"gone NotIn a", true},
		{"zone Exists", true},
		{"zone Exists a", false},
		{"gone Exists", false},
		{"gone DoesNotExist", true},
		{"gone DoesNotExist a", false},
		{"zone DoesNotExist", false},
		{"cores Gt 15", true},
		{"cores Gt 16", false},
		{"cores Gt 1 2", false},
		{"cores Gt x", false},
		{"cores Lt 17", true},
		{"cores Lt 16", false},
		{"odd Gt 0", false},
		{"gone Lt 5", false},
		{"zone Like a", false},
	} {
		f := strings.Fields(c.expression)
		r := v1.NodeSelectorRequirement{Key: f[0], Operator: v1.NodeSelectorOperator(f[1]), Values: f[2:]}
		if got := SelectsNode([]v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{r}}}, "n1", labels); got != c.want {
			t.Errorf("%s: %t", c.expression, got)
		}
	}
	in := func(key, value string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}
	}
	a, b := in("zone", "a"), in("zone", "b")
	here, there := in("metadata.name", "n1"), in("metadata.name", "n2")
	type list = []v1.NodeSelectorRequirement
	for name, c := range map[string]struct {
		terms []v1.NodeSelectorTerm
		want  bool
	}{
		"no term":          {nil, false},
		"an empty one":     {[]v1.NodeSelectorTerm{{}}, false},
		"one of two terms": {[]v1.NodeSelectorTerm{{MatchExpressions: list{b}}, {MatchExpressions: list{a}}}, true},
		"both in one":      {[]v1.NodeSelectorTerm{{MatchExpressions: list{a, b}}}, false},
		"by name":          {[]v1.NodeSelectorTerm{{MatchFields: list{here}}}, true},
		"another's name":   {[]v1.NodeSelectorTerm{{MatchFields: list{there}, MatchExpressions: list{a}}}, false},
		"an unknown field": {[]v1.NodeSelectorTerm{{MatchFields: list{in("metadata.uid", "u")}}}, false},
	} {
		if got := SelectsNode(c.terms, "n1", labels); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
