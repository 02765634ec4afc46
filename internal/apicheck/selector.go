package apicheck

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodeSelector checks the terms of a node selector. It requires at least one term, since a
// selector without terms matches no node.
func NodeSelector(s *v1.NodeSelector, p *field.Path) (errs field.ErrorList) {
	p = p.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		errs = append(errs, field.Required(p, "at least one"))
	}
	for i := range s.NodeSelectorTerms {
		errs = append(errs, NodeSelectorTerm(&s.NodeSelectorTerms[i], p.Index(i))...)
	}
	return errs
}

// NodeSelectorTerm checks the requirements of a term.
func NodeSelectorTerm(t *v1.NodeSelectorTerm, p *field.Path) (errs field.ErrorList) {
	for i := range t.MatchExpressions {
		errs = append(errs, requirement(&t.MatchExpressions[i], p.Child("matchExpressions").Index(i))...)
	}
	for i := range t.MatchFields {
		errs = append(errs, nodeField(&t.MatchFields[i], p.Child("matchFields").Index(i))...)
	}
	return errs
}

// requirement checks a requirement on labels: its key, the number of its values, which depends on
// the operator, and the form of each value.
func requirement(r *v1.NodeSelectorRequirement, p *field.Path) (errs field.ErrorList) {
	for _, m := range validation.IsQualifiedName(r.Key) {
		errs = append(errs, field.Invalid(p.Child("key"), r.Key, m))
	}
	values := p.Child("values")
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "with operator In or NotIn"))
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "must be empty with operator Exists or DoesNotExist"))
		}
	// Gt and Lt compare a label, as an integer, with exactly one value.
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "exactly one with operator Gt or Lt"))
		}
	}
	for i, value := range r.Values {
		for _, m := range validation.IsValidLabelValue(value) {
			errs = append(errs, field.Invalid(values.Index(i), value, m))
		}
	}
	return errs
}

// nodeField checks a requirement on a field of the node; only metadata.name is allowed.
func nodeField(r *v1.NodeSelectorRequirement, p *field.Path) (errs field.ErrorList) {
	if r.Key != metav1.ObjectNameField {
		errs = append(errs, field.NotSupported(p.Child("key"), r.Key, []string{metav1.ObjectNameField}))
	}
	if r.Operator != v1.NodeSelectorOpIn && r.Operator != v1.NodeSelectorOpNotIn {
		errs = append(errs, field.NotSupported(p.Child("operator"), r.Operator, []v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn}))
	}
	if len(r.Values) != 1 {
		errs = append(errs, field.Required(p.Child("values"), "exactly one for a field"))
	}
	for i, value := range r.Values {
		for _, m := range validation.IsDNS1123Subdomain(value) {
			errs = append(errs, field.Invalid(p.Child("values").Index(i), value, m))
		}
	}
	return errs
}
