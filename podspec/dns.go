package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
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
			r.searches = nil
			for _, s := range fields[1:] {
				if s = strings.TrimSuffix(s, "."); s != "" {
					r.searches = append(r.searches, s)
				}
			}
		case "options":
			r.options = mergeOptions(r.options, fields[1:])
		}
	}
	return r, errors.Join(errs...)
}

// mergeOptions adds options to those there; one of the same name replaces.
func mergeOptions(have, more []string) []string {
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
func dnsConfig(in Input) (*runtimeapi.DNSConfig, error) {
	host, err := parseResolvConf(in.Node.ResolvConf)
	if err != nil {
		return nil, err
	}
	r, err := baseResolver(in, host)
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
	r.limit()
	return &runtimeapi.DNSConfig{Servers: r.servers, Searches: r.searches, Options: r.options}, nil
}

// baseResolver is what the policy says, before the pod's own dnsConfig.
func baseResolver(in Input, host resolver) (resolver, error) {
	cluster := false
	switch in.Pod.Spec.DNSPolicy {
	case v1.DNSNone:
		return resolver{}, nil
	case v1.DNSDefault:
	case v1.DNSClusterFirst, "":
		cluster = !in.Pod.Spec.HostNetwork
	case v1.DNSClusterFirstWithHostNet:
		cluster = true
	default:
		return resolver{}, fmt.Errorf("%q is not a DNS policy; there are ClusterFirst, ClusterFirstWithHostNet, Default and None", in.Pod.Spec.DNSPolicy)
	}
	if !cluster || len(in.Node.ClusterDNS) == 0 {
		return host, nil
	}
	r := resolver{servers: in.Node.ClusterDNS, options: []string{"ndots:5"}}
	if d := in.Node.ClusterDomain; d != "" {
		r.searches = []string{in.Pod.Namespace + ".svc." + d, "svc." + d, d}
	}
	r.searches = appendNew(r.searches, host.searches)
	return r, nil
}

// limit cuts what is beyond the limits.
func (r *resolver) limit() {
	r.servers = r.servers[:min(len(r.servers), maxDNSServers)]
	r.searches = slices.Clone(r.searches[:min(len(r.searches), maxDNSSearches)])
	r.searches = slices.DeleteFunc(r.searches, func(s string) bool { return len(s) > maxDNSSearchName })
	for len(strings.Join(r.searches, " ")) > maxDNSSearchLine {
		r.searches = r.searches[:len(r.searches)-1]
	}
}
