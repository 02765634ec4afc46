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

	"github.com/nodewright/nodewright/internal/apicheck"
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

// scheduling checks the fields that schedulers read, and those that a node compares with its
// labels.
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
	if s.Affinity != nil {
		v.affinity(s.Affinity, p.Child("affinity"))
	}
	v.spread(s.TopologySpreadConstraints, p.Child("topologySpreadConstraints"))
}

// affinity checks node affinity and pod affinity. A node uses the required node affinity; the
// rest is for schedulers.
func (v *podValidator) affinity(a *v1.Affinity, p *field.Path) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	weight := func(w int32, p *field.Path) {
		if w < 1 || w > 100 {
			v.add(field.Invalid(p.Child("weight"), w, "must be in the range 1-100"))
		}
	}
	if n := a.NodeAffinity; n != nil {
		np := p.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			v.all(apicheck.NodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, np.Child(required)))
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			t, tp := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], np.Child(preferred).Index(i)
			weight(t.Weight, tp)
			v.all(apicheck.NodeSelectorTerm(&t.Preference, tp.Child("preference")))
		}
	}
	terms := func(list []v1.PodAffinityTerm, weighted []v1.WeightedPodAffinityTerm, p *field.Path) {
		for i := range list {
			v.podAffinity(&list[i], p.Child(required).Index(i))
		}
		for i := range weighted {
			tp := p.Child(preferred).Index(i)
			weight(weighted[i].Weight, tp)
			v.podAffinity(&weighted[i].PodAffinityTerm, tp.Child("podAffinityTerm"))
		}
	}
	if x := a.PodAffinity; x != nil {
		terms(x.RequiredDuringSchedulingIgnoredDuringExecution, x.PreferredDuringSchedulingIgnoredDuringExecution, p.Child("podAffinity"))
	}
	if x := a.PodAntiAffinity; x != nil {
		terms(x.RequiredDuringSchedulingIgnoredDuringExecution, x.PreferredDuringSchedulingIgnoredDuringExecution, p.Child("podAntiAffinity"))
	}
}

// podAffinity checks one term of the pod affinity or anti-affinity.
func (v *podValidator) podAffinity(t *v1.PodAffinityTerm, p *field.Path) {
	for name, s := range map[string]*metav1.LabelSelector{"labelSelector": t.LabelSelector, "namespaceSelector": t.NamespaceSelector} {
		if s != nil {
			v.selector(s, p.Child(name))
		}
	}
	for i, n := range t.Namespaces {
		v.says(p.Child("namespaces").Index(i), n, validation.IsDNS1123Label(n))
	}
	if t.TopologyKey == "" {
		v.add(field.Required(p.Child("topologyKey"), ""))
	} else {
		v.says(p.Child("topologyKey"), t.TopologyKey, validation.IsQualifiedName(t.TopologyKey))
	}
	v.labelKeys(t.MatchLabelKeys, t.LabelSelector, p.Child("matchLabelKeys"))
	v.labelKeys(t.MismatchLabelKeys, t.LabelSelector, p.Child("mismatchLabelKeys"))
	for i, k := range t.MatchLabelKeys {
		if slices.Contains(t.MismatchLabelKeys, k) {
			v.add(field.Invalid(p.Child("matchLabelKeys").Index(i), k, "must not also be in mismatchLabelKeys"))
		}
	}
}

// labelKeys checks matchLabelKeys and mismatchLabelKeys.
func (v *podValidator) labelKeys(keys []string, s *metav1.LabelSelector, p *field.Path) {
	if len(keys) > 0 && s == nil {
		v.add(field.Forbidden(p, "needs a labelSelector"))
	}
	for i, k := range keys {
		v.says(p.Index(i), k, validation.IsQualifiedName(k))
	}
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

// spread checks topologySpreadConstraints: at most one for each pair of topologyKey and
// whenUnsatisfiable.
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
		if n := c.MinDomains; n != nil && *n < 1 {
			v.add(field.Invalid(cp.Child("minDomains"), *n, "must be greater than zero"))
		} else if n != nil && c.WhenUnsatisfiable != v1.DoNotSchedule {
			v.add(field.Invalid(cp.Child("minDomains"), *n, "needs whenUnsatisfiable DoNotSchedule"))
		}
		v.labelKeys(c.MatchLabelKeys, c.LabelSelector, cp.Child("matchLabelKeys"))
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

// names checks the host name, aliases and DNS settings of a pod.
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

// sysctls checks the names only: the node decides which of them a pod may set.
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
