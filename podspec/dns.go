package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits for a pod's resolver configuration. glibc uses at most three servers; the other limits
// are those of the API's validation of dnsConfig.
const (
	maxDNSServers    = 3
	maxDNSSearches   = 32
	maxDNSSearchLine = 2048
	maxDNSSearchName = 253
)

// resolver is the content of a resolv.conf(5).
type resolver struct {
	servers, searches, options []string
}

// parseResolvConf parses the node's resolv.conf. Unknown keywords are ignored.
func parseResolvConf(content string) (resolver, error) {
	var r resolver
	var errs []error
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		// Only # begins a comment, as in the kubelet. resolv.conf(5) also allows a semicolon.
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				errs = append(errs, errors.New("resolv.conf: a nameserver line names no server"))
				continue
			}
			r.servers = append(r.servers, fields[1])
		case "search":
			// The last search line replaces earlier ones, even if it is empty (resolv.conf(5)).
			r.searches = nil
			for _, s := range fields[1:] {
				if s = strings.TrimSuffix(s, "."); s != "" {
					r.searches = append(r.searches, s)
				}
			}
		case "options":
			// Options of all lines are combined.
			r.options = mergeOptions(r.options, fields[1:])
		}
	}
	return r, errors.Join(errs...)
}

// mergeOptions appends the options in more to a copy of options. If two options have the same
// name, the later one replaces the earlier one.
func mergeOptions(options, more []string) []string {
	// Options are equal if the text before the colon is: ndots:2 and ndots:5 set the same option.
	name := func(o string) string { n, _, _ := strings.Cut(o, ":"); return n }
	out := slices.Clone(options)
	for _, o := range more {
		if i := slices.IndexFunc(out, func(h string) bool { return name(h) == name(o) }); i >= 0 {
			out[i] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}

// appendNew returns a new slice with list and the elements of more that are not in it.
func appendNew(list, more []string) []string {
	out := slices.Clone(list)
	for _, s := range more {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// dnsConfig returns the pod's resolver configuration for its dnsPolicy.
func dnsConfig(in Input, col *collector) (*runtimeapi.DNSConfig, error) {
	r, err := baseResolver(in, col)
	if err != nil {
		return nil, err
	}
	if c := in.Pod.Spec.DNSConfig; c != nil {
		r.servers = appendNew(r.servers, c.Nameservers)
		r.searches = appendNew(r.searches, c.Searches)
		var options []string
		for _, o := range c.Options {
			if o.Value != nil {
				options = append(options, o.Name+":"+*o.Value)
			} else {
				options = append(options, o.Name)
			}
		}
		r.options = mergeOptions(r.options, options)
	}
	// Limits apply after the pod's own entries were appended, so these are cut first.
	r.limit(col)
	return &runtimeapi.DNSConfig{Servers: slices.Clone(r.servers), Searches: r.searches, Options: r.options}, nil
}

// baseResolver returns the resolver configuration for the dnsPolicy, without the pod's
// dnsConfig. It parses the node's resolv.conf only for policies that use it.
func baseResolver(in Input, col *collector) (resolver, error) {
	// With None the node's file is not parsed: an error in it must not affect this pod.
	if in.Pod.Spec.DNSPolicy == v1.DNSNone {
		return resolver{}, nil
	}
	host, err := parseResolvConf(in.Node.ResolvConf)
	if err != nil {
		return resolver{}, err
	}
	cluster := clusterResolves(&in.Pod.Spec)
	// A node without a cluster domain belongs to no cluster, so there is no warning.
	if cluster && len(in.Node.ClusterDNS) == 0 && in.Node.ClusterDomain != "" {
		col.warn(dnsPath, ReasonMissingClusterDNS,
			"the node knows no DNS server of the cluster; its own resolver is used instead")
	}
	if !cluster || len(in.Node.ClusterDNS) == 0 {
		if in.Node.ResolvConf == "" {
			return loopbackResolver(in.Node.IPs), nil
		}
		return host, nil
	}
	// With ndots:5, a name such as a.b.svc is looked up in the search domains first. The node's
	// own options are dropped.
	r := resolver{servers: in.Node.ClusterDNS, options: []string{"ndots:5"}}
	if d := in.Node.ClusterDomain; d != "" {
		r.searches = []string{in.Pod.Namespace + ".svc." + d, "svc." + d, d}
	}
	r.searches = appendNew(r.searches, host.searches)
	return r, nil
}

// clusterResolves reports whether a pod uses the cluster's DNS servers. An unknown policy counts
// as ClusterFirstWithHostNet.
func clusterResolves(s *v1.PodSpec) bool {
	switch s.DNSPolicy {
	case v1.DNSDefault:
		return false
	case v1.DNSClusterFirst, "":
		return !s.HostNetwork
	default:
		return true
	}
}

// loopbackResolver returns the configuration for a node without a resolv.conf: its loopback
// address, which is the default of resolv.conf(5). The address is written explicitly, since a
// runtime would otherwise use a file of its own.
func loopbackResolver(nodeIPs []string) resolver {
	// With the root as the only search domain, names are looked up unchanged.
	r := resolver{searches: []string{"."}}
	for _, ip := range nodeIPs {
		loopback := "127.0.0.1"
		if strings.Contains(ip, ":") {
			loopback = "::1"
		}
		r.servers = appendNew(r.servers, []string{loopback})
	}
	if len(r.servers) == 0 {
		r.servers = []string{"127.0.0.1"}
	}
	return r
}

// dnsPath is the field that warnings about the resolver name.
var dnsPath = field.NewPath("spec", "dnsPolicy")

// limit cuts the configuration to the limits, with a warning for each cut.
func (r *resolver) limit(col *collector) {
	if len(r.servers) > maxDNSServers {
		// Resliced, not written to: the node's configuration may share the slice.
		r.servers = r.servers[:maxDNSServers]
		col.warn(dnsPath, ReasonDNSConfigForming,
			"more than %d nameservers, some are left out; applied are: %s", maxDNSServers, strings.Join(r.servers, " "))
	}
	// The kubelet's order: first the number of domains, then the length of each, then the length
	// of the line.
	all := len(r.searches)
	r.searches = slices.Clone(r.searches[:min(all, maxDNSSearches)])
	r.searches = slices.DeleteFunc(r.searches, func(s string) bool { return len(s) > maxDNSSearchName })
	for len(strings.Join(r.searches, " ")) > maxDNSSearchLine {
		r.searches = r.searches[:len(r.searches)-1]
	}
	if len(r.searches) < all {
		col.warn(dnsPath, ReasonDNSConfigForming,
			"search domains exceed the limits, some are left out; applied are: %s", strings.Join(r.searches, " "))
	}
}

// clusterSearches is the number of search domains that a cluster with a domain adds to the
// node's.
const clusterSearches = 3

// CheckResolvConf checks a node's resolv.conf for pods that get its search domains in addition to
// the cluster's. It returns the problems, in the kubelet's words, or nil. clusterDomain may be
// "".
func CheckResolvConf(file, content, clusterDomain string) (problems []string) {
	r, err := parseResolvConf(content)
	if err != nil {
		problems = append(problems, err.Error())
	}
	// The cluster's domains come before the node's and share the limit with them.
	most := maxDNSSearches
	if clusterDomain != "" {
		most -= clusterSearches
	}
	if len(r.searches) > most {
		problems = append(problems, fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", file, most))
	}
	if slices.ContainsFunc(r.searches, func(s string) bool { return len(s) > maxDNSSearchName }) {
		problems = append(problems, fmt.Sprintf("Resolv.conf file '%s' contains a search path which length is more than allowed %d chars!", file, maxDNSSearchName))
	}
	if len(strings.Join(r.searches, " ")) > maxDNSSearchLine {
		problems = append(problems, fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", file, maxDNSSearchLine))
	}
	return problems
}
