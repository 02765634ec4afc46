package kubeapi

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

func TestDeadline(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for random, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := rotationDeadline(c, random).Sub(begin).Round(time.Second); got != want {
			t.Errorf("%v: %v, want %v", random, got, want)
		}
	}
	for _, tc := range []struct {
		age float64 // in percent of its life
		due bool
	}{{1, false}, {50, false}, {69, false}, {91, true}, {99, true}, {110, true}} {
		now := begin.Add(time.Duration(tc.age * float64(time.Hour)))
		for _, random := range []float64{0, 0.5, 0.999} {
			if got := !now.Before(rotateAt(c, random, time.Time{})); got != tc.due {
				t.Errorf("%v%%: due %t", tc.age, got)
			}
		}
	}
	// Clocks that are far apart.
	for name, issued := range map[string]time.Time{
		"here it has expired": begin.Add(200 * time.Hour), "here it is about to": begin.Add(95 * time.Hour), "here it is not valid yet": begin.Add(-5 * time.Hour),
	} {
		if got := rotateAt(c, 0, issued).Sub(issued).Round(time.Second); got != 70*time.Hour {
			t.Errorf("%s: replaced after %v", name, got)
		}
	}
	if got := rotateAt(c, 0, begin.Add(5*time.Minute)); !got.Equal(rotationDeadline(c, 0)) {
		t.Errorf("clocks agree: %v", got)
	}
	// A minute long, and dated back by five.
	brief, now := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(6 * time.Minute)}, begin.Add(5*time.Minute)
	for random, want := range map[float64]time.Duration{0: 42 * time.Second, 1: 54 * time.Second} {
		got := rotateAt(brief, random, now).Sub(now).Round(time.Second)
		if at := rotationDeadline(brief, random); at.After(now) {
			want = at.Sub(now).Round(time.Second)
		}
		if got != want {
			t.Errorf("a brief one: replaced after %v, want %v", got, want)
		}
	}
}

func TestCloseAt(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for age, want := range map[time.Duration]time.Duration{80 * time.Hour: 95 * time.Hour, 96 * time.Hour: 96 * time.Hour, 200 * time.Hour: 200 * time.Hour} {
		if got := closeAt(c, begin.Add(age)).Sub(begin); got != want {
			t.Errorf("%v: %v, want %v", age, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	name := func(cn string, orgs ...string) pkix.Name { return pkix.Name{CommonName: cn, Organization: orgs} }
	ip := net.ParseIP
	have := &x509.Certificate{Subject: name("system:node:a", "system:nodes"), DNSNames: []string{"a", "b"}, IPAddresses: []net.IP{ip("10.0.0.1"), ip("fd00::1")}}
	for _, tc := range []struct {
		name string
		t    x509.CertificateRequest
		want string
	}{
		{"all", x509.CertificateRequest{Subject: name("system:node:a", "system:nodes"), DNSNames: []string{"b", "a"}, IPAddresses: []net.IP{ip("fd00::1"), ip("10.0.0.1")}}, ""},
		{"fewer names", x509.CertificateRequest{Subject: name("system:node:a"), DNSNames: []string{"b"}}, ""},
		{"fewer addresses", x509.CertificateRequest{Subject: name("system:node:a"), IPAddresses: []net.IP{ip("10.0.0.1")}}, ""},
		{"fewer groups", x509.CertificateRequest{Subject: name("system:node:a")}, ""},
		{"four bytes", x509.CertificateRequest{Subject: name("system:node:a"), IPAddresses: []net.IP{ip("10.0.0.1").To4()}}, ""},
		{"another node", x509.CertificateRequest{Subject: name("system:node:b")}, `"system:node:a"`},
		{"another name", x509.CertificateRequest{Subject: name("system:node:a"), DNSNames: []string{"c"}}, `"c"`},
		{"another address", x509.CertificateRequest{Subject: name("system:node:a"), IPAddresses: []net.IP{ip("10.0.0.2")}}, "10.0.0.2"},
		{"another group", x509.CertificateRequest{Subject: name("system:node:a", "x")}, `"x"`},
		{"one name more", x509.CertificateRequest{Subject: name("system:node:a"), DNSNames: []string{"a", "c"}}, `"c"`},
		{"one group more", x509.CertificateRequest{Subject: name("system:node:a", "system:nodes", "y")}, `"y"`},
	} {
		if err := certificateMatches(have, &tc.t); (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestServerTemplate(t *testing.T) {
	addr := func(kind v1.NodeAddressType, a string) v1.NodeAddress { return v1.NodeAddress{Type: kind, Address: a} }
	for _, tc := range []struct {
		name    string
		list    []v1.NodeAddress
		dnsOnly bool
		dns, ip string // "nil": no template
	}{
		{"nothing", nil, false, "nil", ""},
		{"nothing, names would do", nil, true, "nil", ""},
		{"a name", []v1.NodeAddress{addr("Hostname", "h")}, false, "nil", ""},
		{"a name will do", []v1.NodeAddress{addr("Hostname", "h")}, true, "h", ""},
		{"an address", []v1.NodeAddress{addr("InternalIP", "10.0.0.1")}, false, "", "10.0.0.1"},
		{"a host name that is an address", []v1.NodeAddress{addr("Hostname", "10.0.0.1")}, false, "", "10.0.0.1"},
		{"an address that is none", []v1.NodeAddress{addr("InternalIP", "h"), addr("ExternalIP", "")}, true, "nil", ""},
		{"all kinds, twice, sorted", []v1.NodeAddress{
			addr("InternalDNS", "z"), addr("Hostname", "h"), addr("ExternalDNS", "a"), addr("InternalIP", "10.0.0.2"), addr("ExternalIP", "1.1.1.1"),
			addr("InternalIP", "10.0.0.2"), addr("InternalDNS", "z"), addr("Hostname", ""), addr("ExternalDNS", ""), addr("Other", "x"), addr("InternalIP", "fd00::1"),
		}, false, "a h z", "1.1.1.1 10.0.0.2 fd00::1"},
	} {
		got := ServingCertificateTemplate("n", tc.list, tc.dnsOnly)
		if got == nil {
			if tc.dns != "nil" {
				t.Errorf("%s: none", tc.name)
			}
			continue
		}
		var ips []string
		for _, ip := range got.IPAddresses {
			ips = append(ips, ip.String())
		}
		if strings.Join(got.DNSNames, " ") != tc.dns || strings.Join(ips, " ") != tc.ip || got.Subject.CommonName != "system:node:n" || got.Subject.Organization[0] != "system:nodes" {
			t.Errorf("%s: %v, %v", tc.name, got.DNSNames, ips)
		}
	}
}

func TestRetryWait(t *testing.T) {
	for try, want := range []time.Duration{2, 4, 8, 16, 32, 32, 32} {
		if got := retryWait(try, errors.New("x")); got < want*time.Second || got > want*time.Second*11/10 {
			t.Errorf("%d: %v, want %ds and up to 10 %% more", try, got, want)
		}
	}
	if got := retryWait(50, ErrCertificateDenied); got < refusedWait {
		t.Errorf("denied: %v", got)
	}
}

func TestRequestNames(t *testing.T) {
	key, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, _ := newKey()
	usages := ClientCertificate.usages()
	name := func(req *certificatesv1.CertificateSigningRequest, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return req.Name
	}
	a := name(newRequest(key, ClientCertificateTemplate("a"), "s", usages))
	if again := name(newRequest(key, ClientCertificateTemplate("a"), "s", usages)); again != a || !strings.HasPrefix(a, "node-csr-") || len(a) != len("node-csr-")+43 {
		t.Errorf("%q, %q", a, again)
	}
	for what, n := range map[string]string{
		"key": name(newRequest(other, ClientCertificateTemplate("a"), "s", usages)), "subject": name(newRequest(key, ClientCertificateTemplate("b"), "s", usages)),
		"usages": name(newRequest(key, ClientCertificateTemplate("a"), "s", ServingCertificate.usages())),
	} {
		if n == a {
			t.Errorf("another %s, the same name", what)
		}
	}
	x, _ := newRequest(key, ClientCertificateTemplate("a"), "s", usages)
	y, _ := newRequest(other, ClientCertificateTemplate("a"), "s", usages)
	z, _ := newRequest(key, ClientCertificateTemplate("a"), "other", usages)
	again, _ := newRequest(key, ClientCertificateTemplate("a"), "s", usages)
	if !sameRequest(x, again) || sameRequest(x, y) || sameRequest(x, z) || sameRequest(x, &certificatesv1.CertificateSigningRequest{}) {
		t.Error("sameRequest")
	}
	if ClientCertificate.signer() != "kubernetes.io/kube-apiserver-client-kubelet" || ServingCertificate.signer() != "kubernetes.io/kubelet-serving" {
		t.Error("signers")
	}
}
