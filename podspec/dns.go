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

// The limits that Kubernetes puts on a pod's resolver configuration: three
// servers as glibc has them, and what validation of dnsConfig allows.
const (
	maxDNSServers    = 3
	maxDNSSearches   = 32
	maxDNSSearchLine = 2048
	maxDNSSearchName = 253
)

// resolver is a resolv.conf(5).
type resolver struct {
	servers, searches, options []string
}

// parseResolvConf reads the node's resolv.conf. What it does not know it
// leaves out.
func parseResolvConf(content string) (resolver, error) {
	var r resolver
	var errs []error
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		// Only # begins a comment, as with the kubelet; resolv.conf(5) also has the
		// semicolon.
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
			// The last line counts, even an empty one (resolv.conf(5)).
			r.searches = nil
			for _, s := range fields[1:] {
				if s = strings.TrimSuffix(s, "."); s != "" {
					r.searches = append(r.searches, s)
				}
			}
		case "options":
			// Options of several lines add up.
			r.options = mergeOptions(r.options, fields[1:])
		}
	}
	return r, errors.Join(errs...)
}

// mergeOptions adds options to those there; one of the same name replaces.
func mergeOptions(have, more []string) []string {
	// ndots:2 and ndots:5 are the same option.
	name := func(o string) string { n, _, _ := strings.Cut(o, ":"); return n }
	out := slices.Clone(have)
	for _, o := range more {
		if i := slices.IndexFunc(out, func(h string) bool { return name(h) == name(o) }); i >= 0 {
			out[i] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}

// appendNew adds what is not in the list yet. The result shares nothing with
// list.
func appendNew(list, more []string) []string {
	out := slices.Clone(list)
	for _, s := range more {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// dnsConfig is the pod's resolver configuration by its dnsPolicy.
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
	// After everything has been added: the pod's own entries come last and are
	// cut first.
	r.limit(col)
	return &runtimeapi.DNSConfig{Servers: slices.Clone(r.servers), Searches: r.searches, Options: r.options}, nil
}

// baseResolver is what the policy says, before the pod's own dnsConfig. The
// node's own file matters to no pod that has no use for it.
func baseResolver(in Input, col *collector) (resolver, error) {
	// The node's file is not even parsed, as an error in it is not this pod's.
	if in.Pod.Spec.DNSPolicy == v1.DNSNone {
		return resolver{}, nil
	}
	host, err := parseResolvConf(in.Node.ResolvConf)
	if err != nil {
		return resolver{}, err
	}
	cluster := clusterResolves(&in.Pod.Spec)
	// A node without a cluster domain belongs to no cluster, and nobody is to be
	// warned.
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
	// With ndots:5 names such as a.b.svc are looked for in the search domains
	// first. The node's own options are dropped.
	r := resolver{servers: in.Node.ClusterDNS, options: []string{"ndots:5"}}
	if d := in.Node.ClusterDomain; d != "" {
		r.searches = []string{in.Pod.Namespace + ".svc." + d, "svc." + d, d}
	}
	r.searches = appendNew(r.searches, host.searches)
	return r, nil
}

// clusterResolves reports whether a pod asks the cluster's servers. A policy
// that is not known counts as ClusterFirstWithHostNet.
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

// loopbackResolver stands for the file of a node that has none: the resolver
// asks the node itself then (resolv.conf(5)), and the runtime is told so, lest
// it take a file of its own.
func loopbackResolver(nodeIPs []string) resolver {
	// The root as the only search domain: names are looked up as they are.
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

// limit cuts what is beyond the limits, and says what is left.
func (r *resolver) limit(col *collector) {
	if len(r.servers) > maxDNSServers {
		// The slice may be the node's: it is cut, and never written to.
		r.servers = r.servers[:maxDNSServers]
		col.warn(dnsPath, ReasonDNSConfigForming,
			"more than %d nameservers, some are left out; applied are: %s", maxDNSServers, strings.Join(r.servers, " "))
	}
	// In this order, as with the kubelet: the number, the single names, the
	// length of the line.
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

// clusterSearches is how many search domains of the cluster a pod gets beside the
// node's, where the cluster has a domain.
const clusterSearches = 3

// CheckResolvConf returns what is wrong with a node's resolv.conf for the pods that get its
// search domains beside those of a cluster of that domain, which may be "": nil if
// nothing is. Each text is the kubelet's.
func CheckResolvConf(file, content, clusterDomain string) (problems []string) {
	r, err := parseResolvConf(content)
	if err != nil {
		problems = append(problems, err.Error())
	}
	// A pod has the cluster's domains before the node's, and both share the
	// limit.
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
