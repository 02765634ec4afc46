package podspec

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// nameError is an invalid name in a field of the spec.
type nameError struct{ field, text string }

func (e *nameError) Error() string { return e.text }

// wrongName returns an error with the first of the validation messages, or nil if there are none.
func wrongName(field, name string, msgs []string) error {
	if len(msgs) == 0 {
		return nil
	}
	return &nameError{field, fmt.Sprintf("%q: %s", name, msgs[0])}
}

// hostname returns the pod's host name and its domain, which may be "". The error is a
// *nameError.
func hostname(in Input) (host, domain string, err error) {
	pod := in.Pod
	// hostnameOverride is used unchanged: no domain is added to it (KEP-4762).
	if o := pod.Spec.HostnameOverride; o != nil && *o != "" {
		if err := wrongName("hostnameOverride", *o, validation.IsDNS1123Subdomain(*o)); err != nil {
			return "", "", err
		}
		host, err = truncateHostname("hostnameOverride", *o)
		return host, "", err
	}
	// The API server has validated the pod's name, but it may be too long for a label.
	host = pod.Name
	if pod.Spec.Hostname != "" {
		if err := wrongName("hostname", pod.Spec.Hostname, validation.IsDNS1123Label(pod.Spec.Hostname)); err != nil {
			return "", "", err
		}
		host = pod.Spec.Hostname
	}
	if host, err = truncateHostname("hostname", host); err != nil {
		return "", "", err
	}
	if s := pod.Spec.Subdomain; s != "" {
		if err := wrongName("subdomain", s, validation.IsDNS1123Label(s)); err != nil {
			return "", "", err
		}
		domain = s + "." + pod.Namespace + ".svc." + in.Node.ClusterDomain // ends in a dot if the cluster has no domain
	}
	return host, domain, nil
}

// truncateHostname cuts a name to the 63 characters that a label may have
// (RFC 1123) and leaves no separator at its end.
func truncateHostname(field, name string) (string, error) {
	const limit = 63
	if len(name) <= limit {
		return name, nil
	}
	if name = strings.TrimRight(name[:limit], "-."); name == "" {
		return "", &nameError{field, "no usable host name is left after cutting it to 63 characters"}
	}
	return name, nil
}

// loopbackHosts is the beginning of each hosts file, the same text as the kubelet's, byte for byte.
const loopbackHosts = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// hostsFile returns the content of the pod's /etc/hosts.
func hostsFile(in Input) string {
	var b strings.Builder
	if in.Pod.Spec.HostNetwork {
		// The node's own entries, followed by the pod's aliases.
		b.WriteString("# Kubernetes-managed hosts file (host network).\n" + in.Node.HostsFile)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" + loopbackHosts)
		host, domain, err := hostname(in)
		if err == nil { // Sandbox reports the error
			for _, ip := range in.PodIPs {
				// The fully qualified name comes first, which makes it the canonical name
				// (hosts(5)).
				b.WriteString(ip + "\t")
				if domain != "" {
					b.WriteString(host + "." + domain + "\t")
				}
				b.WriteString(host + "\n")
			}
		}
	}
	if len(in.Pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range in.Pod.Spec.HostAliases {
			b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
		}
	}
	return b.String()
}
