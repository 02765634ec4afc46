package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// TLSOptions has TLS settings by name. The zero value uses Go's defaults and TLS 1.2 as the oldest
// version. The names are the values of the fields tlsCipherSuites, tlsMinVersion and
// tlsCurvePreferences of a KubeletConfiguration.
type TLSOptions struct {
	// CipherSuites are names from IANA, as in Go, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
	// They have no effect on TLS 1.3.
	CipherSuites []string
	// MinVersion is VersionTLS10 to VersionTLS13.
	MinVersion string
	// Curves are key exchanges by their IANA number (tls.CurveID), such as 29 for X25519.
	Curves []int32
}

// versions has the values of tlsMinVersion in the kubelet's configuration.
var versions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
	"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// curves are the key exchanges that Go supports.
var curves = []tls.CurveID{tls.CurveP256, tls.CurveP384, tls.CurveP521, tls.X25519, tls.X25519MLKEM768}

// apply sets conf. warnings are about choices that are insecure or have no effect. The error
// joins all invalid options.
func (o TLSOptions) apply(conf *tls.Config) (warnings []string, err error) {
	var errs []error
	// The default of the kubelet and of Go.
	conf.MinVersion = tls.VersionTLS12
	if o.MinVersion != "" {
		v, ok := versions[o.MinVersion]
		if !ok {
			errs = append(errs, fmt.Errorf("tlsMinVersion is %q; want one of %s", o.MinVersion, names(versions)))
		}
		conf.MinVersion = v
	}
	// The names in Go's lists are IANA's.
	safe, unsafe := map[string]uint16{}, map[string]uint16{}
	for _, c := range tls.CipherSuites() {
		safe[c.Name] = c.ID
	}
	for _, c := range tls.InsecureCipherSuites() {
		unsafe[c.Name] = c.ID
	}
	for _, n := range o.CipherSuites {
		if id, ok := safe[n]; ok {
			conf.CipherSuites = append(conf.CipherSuites, id)
		} else if id, ok := unsafe[n]; ok {
			conf.CipherSuites = append(conf.CipherSuites, id)
			warnings = append(warnings, "tlsCipherSuites has "+n+", which is insecure")
		} else {
			errs = append(errs, fmt.Errorf("tlsCipherSuites has %q; want some of %s", n, names(safe)))
		}
	}
	// TLS 1.3 has its own suites, which cannot be configured in Go.
	if len(o.CipherSuites) > 0 && conf.MinVersion == tls.VersionTLS13 {
		warnings = append(warnings, "tlsCipherSuites has no effect with tlsMinVersion VersionTLS13")
	}
	// Their order has no effect: Go has its own preference.
	for _, n := range o.Curves {
		i := slices.IndexFunc(curves, func(c tls.CurveID) bool { return int32(c) == n })
		if i < 0 {
			errs = append(errs, fmt.Errorf("tlsCurvePreferences has %d; want some of %s", n, numbers(curves)))
			continue
		}
		conf.CurvePreferences = append(conf.CurvePreferences, curves[i])
	}
	return warnings, errors.Join(errs...)
}

// names lists the keys of a map for a message, sorted.
func names[V any](m map[string]V) string {
	var out []string
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// numbers lists key exchanges for a message, by number and name.
func numbers(list []tls.CurveID) string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%d (%v)", uint16(c), c))
	}
	return strings.Join(out, ", ")
}
