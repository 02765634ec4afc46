package kubeapi

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Names of a node among users (k8s.io/kubernetes' contract with the node
// authorizer).
const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
)

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: userPrefix + node, Organization: []string{nodesGroup}}
}

// ClientCertificateTemplate returns the content of a node's client certificate.
func ClientCertificateTemplate(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: subject(node)}
}

// ServingCertificateTemplate returns the content of a node's serving certificate for
// the addresses of its status. It returns nil if no address is usable, or if no address
// is an IP and dnsOnly is false.
func ServingCertificateTemplate(node string, addresses []v1.NodeAddress, dnsOnly bool) *x509.CertificateRequest {
	names, ips := map[string]bool{}, map[string]net.IP{}
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		switch a.Type {
		case v1.NodeHostName:
			if ip == nil && a.Address != "" {
				names[a.Address] = true
			}
		case v1.NodeExternalIP, v1.NodeInternalIP:
		case v1.NodeExternalDNS, v1.NodeInternalDNS:
			if a.Address != "" {
				names[a.Address] = true
			}
			continue
		default:
			continue
		}
		if ip != nil {
			ips[ip.String()] = ip
		}
	}
	if len(ips) == 0 && (!dnsOnly || len(names) == 0) {
		return nil
	}
	out := &x509.CertificateRequest{Subject: subject(node)}
	for name := range names {
		out.DNSNames = append(out.DNSNames, name)
	}
	slices.Sort(out.DNSNames)
	var texts []string
	for text := range ips {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	for _, text := range texts {
		out.IPAddresses = append(out.IPAddresses, ips[text])
	}
	return out
}

// certificateMatches returns an error if a certificate has another common name than a
// template, or lacks one of its DNS names, addresses or groups. Additional content is
// accepted.
func certificateMatches(c *x509.Certificate, t *x509.CertificateRequest) error {
	if c.Subject.CommonName != t.Subject.CommonName {
		return fmt.Errorf("certificate is for %q; want %q", c.Subject.CommonName, t.Subject.CommonName)
	}
	for _, name := range t.DNSNames {
		if !slices.Contains(c.DNSNames, name) {
			return fmt.Errorf("certificate lacks the name %q", name)
		}
	}
	for _, ip := range t.IPAddresses {
		if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return fmt.Errorf("certificate lacks the address %s", ip)
		}
	}
	for _, org := range t.Subject.Organization {
		if !slices.Contains(c.Subject.Organization, org) {
			return fmt.Errorf("certificate lacks the group %q", org)
		}
	}
	return nil
}

// sameTemplate reports whether two templates are equal.
func sameTemplate(a, b *x509.CertificateRequest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Subject.CommonName == b.Subject.CommonName && slices.Equal(a.Subject.Organization, b.Subject.Organization) &&
		slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, func(x, y net.IP) bool { return x.Equal(y) })
}
