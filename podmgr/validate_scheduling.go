package podmgr

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of a pod's DNS configuration (the API's documentation of dnsConfig).
const (
	maxNameservers = 3
	maxSearchPaths = 32
	maxSearchList  = 2048 // bytes, with the blanks between paths
	maxSysctlName  = 253
	// The separators of sysctl(8), dots and slashes, may be mixed.
	sysctlNameSyntax = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`
)

var sysctlName = regexp.MustCompile(sysctlNameSyntax)

// scheduling checks what schedulers read, and what a node compares with itself.
func (v *podValidator) scheduling(s *v1.PodSpec, p *field.Path) {
	for _, k := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		v.says(p.Child("nodeSelector"), k, validation.IsQualifiedName(k))
		v.says(p.Child("nodeSelector").Key(k), s.NodeSelector[k], validation.IsValidLabelValue(s.NodeSelector[k]))
	}
	if s.PriorityClassName != "" {
		v.says(p.Child("priorityClassName"), s.PriorityClassName, validation.IsDNS1123Subdomain(s.PriorityClassName))
	}
	for i, g := range s.ReadinessGates {
		v.says(p.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType), validation.IsQualifiedName(string(g.ConditionType)))
	}
	for i := range s.Tolerations {
		v.toleration(&s.Tolerations[i], p.Child("tolerations").Index(i))
	}
	// Preferences are left out: no node compares itself with them.
	if a := s.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		v.nodeSelector(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, p.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
	}
	v.spread(s.TopologySpreadConstraints, p.Child("topologySpreadConstraints"))
}

// toleration checks one toleration. An empty key with Exists tolerates every taint.
func (v *podValidator) toleration(t *v1.Toleration, p *field.Path) {
	if t.Key != "" {
		v.says(p.Child("key"), t.Key, validation.IsQualifiedName(t.Key))
	} else if t.Operator != v1.TolerationOpExists {
		v.add(field.Invalid(p.Child("operator"), t.Operator, "must be Exists without a key"))
	}
	// Seconds delay the eviction from a node, which no other effect causes.
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		v.add(field.Invalid(p.Child("effect"), t.Effect, "must be NoExecute with tolerationSeconds"))
	}
	switch t.Operator {
	// An empty operator means Equal.
	case v1.TolerationOpEqual, "":
		v.says(p.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
	case v1.TolerationOpExists:
		if t.Value != "" {
			v.add(field.Invalid(p.Child("value"), t.Value, "must be empty with operator Exists"))
		}
	}
}

// nodeSelector checks the terms, one of which has
// to match. Without any no node would ever match.
func (v *podValidator) nodeSelector(s *v1.NodeSelector, p *field.Path) {
	p = p.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		v.add(field.Required(p, "at least one"))
	}
	for i := range s.NodeSelectorTerms {
		for j := range s.NodeSelectorTerms[i].MatchExpressions {
			v.requirement(&s.NodeSelectorTerms[i].MatchExpressions[j], p.Index(i).Child("matchExpressions").Index(j))
		}
	}
}

// requirement checks that the number of values fits the operator.
func (v *podValidator) requirement(r *v1.NodeSelectorRequirement, p *field.Path) {
	v.says(p.Child("key"), r.Key, validation.IsQualifiedName(r.Key))
	values := p.Child("values")
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			v.add(field.Required(values, "with operator In or NotIn"))
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			v.add(field.Forbidden(values, "may not be there with operator Exists or DoesNotExist"))
		}
	// Gt and Lt compare a label, as an integer, with one value.
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			v.add(field.Required(values, "exactly one with operator Gt or Lt"))
		}
	}
	for i, value := range r.Values {
		v.says(values.Index(i), value, validation.IsValidLabelValue(value))
	}
}

// spread checks the constraints, of which there is one for each topology and action.
func (v *podValidator) spread(list []v1.TopologySpreadConstraint, p *field.Path) {
	seen := map[string]bool{}
	for i := range list {
		c, cp := &list[i], p.Index(i)
		if c.MaxSkew < 1 {
			v.add(field.Invalid(cp.Child("maxSkew"), c.MaxSkew, "must be 1 or more"))
		}
		if c.TopologyKey == "" {
			v.add(field.Required(cp.Child("topologyKey"), ""))
		}
		key := c.TopologyKey + ", " + string(c.WhenUnsatisfiable)
		if seen[key] {
			v.add(field.Duplicate(cp.Child("topologyKey"), key))
		}
		seen[key] = true
		if c.LabelSelector != nil {
			v.selector(c.LabelSelector, cp.Child("labelSelector"))
		}
	}
}

// selector checks a selector of labels as the API server does.
func (v *podValidator) selector(s *metav1.LabelSelector, p *field.Path) {
	for _, e := range metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, p) {
		v.add(e)
	}
}

// names checks how a pod finds others by name.
func (v *podValidator) names(s *v1.PodSpec, p *field.Path) {
	for i, a := range s.HostAliases {
		for j, name := range a.Hostnames {
			v.says(p.Child("hostAliases").Index(i).Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))
		}
	}
	d := s.DNSConfig
	if d == nil {
		return
	}
	p = p.Child("dnsConfig")
	// More would be ignored by the resolver (resolv.conf(5), MAXNS).
	if len(d.Nameservers) > maxNameservers {
		v.add(field.TooMany(p.Child("nameservers"), len(d.Nameservers), maxNameservers))
	}
	for i, ip := range d.Nameservers {
		if net.ParseIP(ip) == nil {
			v.add(field.Invalid(p.Child("nameservers").Index(i), ip, "must be an IP address"))
		}
	}
	if len(d.Searches) > maxSearchPaths {
		v.add(field.TooMany(p.Child("searches"), len(d.Searches), maxSearchPaths))
	}
	// The list is one line in resolv.conf.
	if n := len(strings.Join(d.Searches, " ")); n > maxSearchList {
		v.add(field.TooLong(p.Child("searches"), "", maxSearchList))
	}
	for i, name := range d.Searches {
		// A dot alone is the root; names of services
		// may have underscores, and a dot at the end.
		if name != "." {
			v.says(p.Child("searches").Index(i), name, validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(name, ".")))
		}
	}
	for i, o := range d.Options {
		if o.Name == "" {
			v.add(field.Required(p.Child("options").Index(i).Child("name"), ""))
		}
	}
}

// sysctls checks names alone: which of them a pod may set is the node's decision.
func (v *podValidator) sysctls(list []v1.Sysctl, p *field.Path) {
	seen := map[string]bool{}
	for i, s := range list {
		np := p.Index(i).Child("name")
		switch {
		case s.Name == "":
			v.add(field.Required(np, ""))
		case len(s.Name) > maxSysctlName || !sysctlName.MatchString(s.Name):
			v.add(field.Invalid(np, s.Name, fmt.Sprintf("must have at most %d bytes and match %s", maxSysctlName, sysctlNameSyntax)))
		case seen[s.Name]:
			v.add(field.Duplicate(np, s.Name))
		}
		seen[s.Name] = true
	}
}
