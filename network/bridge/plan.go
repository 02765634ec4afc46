package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

const (
	// planVersion is in each plan: an agent of another version may read it after an
	// upgrade or a downgrade.
	planVersion = 1
	maxPlan     = 4 << 10 // bytes; one has about 200
)

// plan is the stored plan of an attachment. TearDown needs nothing else besides the attachment,
// even if the configuration has changed. It is written to the record before anything is created,
// so that after a crash at any point the record names everything that exists.
type plan struct {
	Version int `json:"v"`
	// Number increases with each plan of a node, so that the latest one is known.
	Number uint64       `json:"n"`
	Bridge string       `json:"bridge"`
	Table  string       `json:"table"`
	Veth   string       `json:"veth"`
	IPv4   netip.Prefix `json:"ipv4"` // the pod's address, with the bits of its subnet
	IPv6   netip.Prefix `json:"ipv6,omitzero"`
}

// bytes returns the plan as it is saved. Equal plans have equal bytes.
func (p plan) bytes() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain values
	}
	return b
}

// parsePlan reads a stored plan, and refuses anything that this package did not
// write: a record may be damaged, and its names become part of kernel requests made
// as root.
func parsePlan(b []byte) (plan, error) {
	if len(b) > maxPlan {
		return plan{}, fmt.Errorf("saved plan has %d bytes, want at most %d", len(b), maxPlan)
	}
	var p plan
	if err := json.Unmarshal(b, &p); err != nil {
		return plan{}, fmt.Errorf("decode saved plan: %w", err)
	}
	switch {
	// A plan of a newer agent is not read; TearDown uses the ID instead.
	case p.Version != planVersion:
		return plan{}, fmt.Errorf("saved plan: version is %d; want %d", p.Version, planVersion)
	case !validIfname(p.Bridge):
		return plan{}, fmt.Errorf("saved plan: bridge %q is not a valid interface name", p.Bridge)
	case !validIfname(p.Veth):
		return plan{}, fmt.Errorf("saved plan: veth %q is not a valid interface name", p.Veth)
	case !validTable(p.Table):
		return plan{}, fmt.Errorf("saved plan: table %q is not a valid table name", p.Table)
	}
	// The address must be one that this package could have allocated: freeing any
	// other would corrupt the address store.
	if err := validSubnet(p.IPv4.Masked()); err != nil {
		return plan{}, fmt.Errorf("saved plan: ipv4 %s: %w", p.IPv4, err)
	}
	if !newAddresses(p.IPv4.Masked()).givable(p.IPv4.Addr()) {
		return plan{}, fmt.Errorf("saved plan: ipv4 %s is not a pod address", p.IPv4)
	}
	if p.IPv6 != (netip.Prefix{}) {
		if !p.IPv6.IsValid() {
			return plan{}, errors.New("saved plan: ipv6 is not an address")
		}
		if err := validSubnet6(p.IPv6.Masked(), p.IPv4.Masked()); err != nil {
			return plan{}, fmt.Errorf("saved plan: ipv6 %s: %w", p.IPv6, err)
		}
	}
	return p, nil
}

// ips returns the addresses of a pod, IPv4 first, in the order of the pod's status.
func (p plan) ips() []netip.Addr {
	out := []netip.Addr{p.IPv4.Addr()}
	if p.IPv6.IsValid() {
		out = append(out, p.IPv6.Addr())
	}
	return out
}
