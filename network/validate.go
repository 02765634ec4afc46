package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of an attachment, a plan and a result.
const (
	maxID         = 128
	maxName       = 253 // of a DNS subdomain
	maxPath       = 4096
	maxPorts      = 4096
	maxAttachment = 512 << 10 // bytes as JSON; annotations alone may have 256 KiB
	maxSaved      = 256 << 10
	maxExtra      = 256 << 10
	maxIPs        = 64
	maxWarnings   = 64
	maxWarning    = 1024 // bytes
	minBandwidth  = 1_000
	maxBandwidth  = 1_000_000_000_000_000
)

// digest identifies the values of an attachment.
type digest [sha256.Size]byte

// clone returns a deep copy of a. UserNS is not duplicated.
func clone(a Attachment) Attachment {
	a.Ports = slices.Clone(a.Ports)
	a.Annotations, a.Labels = maps.Clone(a.Annotations), maps.Clone(a.Labels)
	a.DNS = DNS{Servers: slices.Clone(a.DNS.Servers), Searches: slices.Clone(a.DNS.Searches), Options: slices.Clone(a.DNS.Options)}
	return a
}

// normal checks an attachment. It returns a deep copy without the ports that are
// dropped, and the digest of the copy.
func normal(a Attachment) (Attachment, digest, error) {
	a.UserNS = nil
	a = clone(a)
	a.Ports = slices.DeleteFunc(a.Ports, func(p Port) bool { return p.HostPort == 0 })
	for i := range a.Ports {
		a.Ports[i].HostIP = a.Ports[i].HostIP.Unmap()
	}
	if err := check(&a); err != nil {
		return Attachment{}, digest{}, &Error{InvalidArgument, err}
	}
	b, err := json.Marshal(a)
	if err != nil {
		return Attachment{}, digest{}, Errorf(InvalidArgument, "attachment: %w", err)
	}
	if len(b) > maxAttachment {
		return Attachment{}, digest{}, Errorf(InvalidArgument, "attachment has %d bytes as JSON; want at most %d", len(b), maxAttachment)
	}
	return a, sha256.Sum256(b), nil
}

func check(a *Attachment) error {
	errs := []error{
		checkID(a.ID),
		checkName("Namespace", a.Namespace), checkName("Name", a.Name), checkName("UID", a.UID), checkName("Hostname", a.Hostname),
		checkText("CgroupParent", a.CgroupParent, maxPath),
		checkBandwidth("Ingress", a.Ingress), checkBandwidth("Egress", a.Egress),
	}
	if len(a.Ports) > maxPorts {
		errs = append(errs, fmt.Errorf("attachment has %d Ports; want at most %d", len(a.Ports), maxPorts))
	} else {
		for i, p := range a.Ports {
			errs = append(errs, checkPort(i, p))
		}
	}
	return errors.Join(errs...)
}

func checkID(id string) error {
	ok := id != "" && len(id) <= maxID
	for i := range len(id) {
		c := id[i]
		letter := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		ok = ok && (letter || i > 0 && (c == '_' || c == '.' || c == '-'))
	}
	if !ok {
		return fmt.Errorf("attachment's ID is %.200q; want [a-zA-Z0-9][a-zA-Z0-9_.-]* of at most %d bytes", id, maxID)
	}
	return nil
}

// checkName refuses values that a plugin could read as more than one argument.
func checkName(field, s string) error {
	ok := len(s) <= maxName
	for i := range len(s) {
		ok = ok && s[i] > ' ' && s[i] < 0x7f && s[i] != ';' && s[i] != '=' && s[i] != '/'
	}
	if !ok {
		return fmt.Errorf("attachment's %s is %.300q; want at most %d printable ASCII characters without ';', '=' and '/'", field, s, maxName)
	}
	return nil
}

func checkText(field, s string, limit int) error {
	if len(s) > limit || !utf8.ValidString(s) || bytes.ContainsAny([]byte(s), "\x00\n") {
		return fmt.Errorf("attachment's %s is %.300q; want at most %d bytes of UTF-8 on one line", field, s, limit)
	}
	return nil
}

func checkBandwidth(field string, bits uint64) error {
	if bits != 0 && (bits < minBandwidth || bits > maxBandwidth) {
		return fmt.Errorf("attachment's %s is %d bits/s; want 0 (no limit), or %d to %d", field, bits, minBandwidth, uint64(maxBandwidth))
	}
	return nil
}

func checkPort(i int, p Port) error {
	switch {
	case p.Protocol != "tcp" && p.Protocol != "udp" && p.Protocol != "sctp":
		return fmt.Errorf("attachment's Ports[%d].Protocol is %.20q; want tcp, udp or sctp", i, p.Protocol)
	case p.ContainerPort == 0:
		return fmt.Errorf("attachment's Ports[%d].ContainerPort is 0; want 1 to 65535", i)
	case p.HostIP.Zone() != "":
		return fmt.Errorf("attachment's Ports[%d].HostIP is %.80s; want an address without a zone", i, p.HostIP)
	}
	return nil
}

// checkSaved checks the result of Plan.
func checkSaved(saved []byte) error {
	if len(saved) > maxSaved {
		return Errorf(FailedPrecondition, "plan has %d bytes; want at most %d", len(saved), maxSaved)
	}
	return nil
}

// checkResult checks the result of a plugin's SetUp, and returns a copy with path as
// Netns.
func checkResult(plugin string, r Result, path string) (Result, error) {
	switch {
	case len(r.IPs) == 0 && plugin != none{}.Name():
		return Result{}, Errorf(FailedPrecondition, "result has no address")
	case len(r.IPs) > maxIPs:
		return Result{}, Errorf(FailedPrecondition, "result has %d addresses; want at most %d", len(r.IPs), maxIPs)
	case len(r.Extra) > maxExtra:
		return Result{}, Errorf(FailedPrecondition, "result's Extra has %d bytes; want at most %d", len(r.Extra), maxExtra)
	case len(r.Extra) > 0 && !json.Valid(r.Extra):
		return Result{}, Errorf(FailedPrecondition, "result's Extra is not JSON")
	}
	out := Result{Netns: path, Extra: slices.Clone(r.Extra)}
	for _, ip := range r.IPs {
		if !ip.IsValid() || ip.IsUnspecified() || ip.Zone() != "" {
			return Result{}, Errorf(FailedPrecondition, "result has the address %.80q; want one of a pod", ip)
		}
		out.IPs = append(out.IPs, ip.Unmap())
	}
	for _, w := range r.Warnings[:min(len(r.Warnings), maxWarnings)] {
		out.Warnings = append(out.Warnings, strings.ToValidUTF8(w[:min(len(w), maxWarning)], ""))
	}
	return out, nil
}
