package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/nodewright/nodewright/network"
)

// Limits of results.
const (
	maxExtra     = 256 << 10 // bytes of a recorded result
	maxAddresses = 32        // of a pod
)

// addresses returns the pod's addresses in a result: those of the pod's interface in
// its namespace, and those without an interface, as old versions have them.
func addresses(r types.Result, ifName, netns string, prefer Preference) (ips []netip.Addr, err error) {
	defer recovered(&err)
	result, err := current.GetResult(r)
	if err != nil {
		return nil, err
	}
	for i, c := range result.IPs {
		if c == nil {
			return nil, network.Errorf(network.Unknown, "ips[%d] of the result is null", i)
		}
		if c.Interface != nil {
			at := *c.Interface
			if at < 0 || at >= len(result.Interfaces) || result.Interfaces[at] == nil {
				return nil, network.Errorf(network.Unknown, "ips[%d].interface of the result is %d; want one of its %d interfaces", i, at, len(result.Interfaces))
			}
			if on := result.Interfaces[at]; on.Name != ifName || !sameNamespace(on.Sandbox, netns) {
				continue
			}
		}
		ip, err := address(c.Address)
		if err != nil {
			return nil, network.Errorf(network.Unknown, "ips[%d].address of the result: %w", i, err)
		}
		if !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
		if len(ips) > maxAddresses {
			return nil, network.Errorf(network.Unknown, "result has more than %d addresses", maxAddresses)
		}
	}
	if len(ips) == 0 {
		return nil, network.Errorf(network.FailedPrecondition, "result has no address of interface %s in namespace %s", ifName, netns)
	}
	if prefer != AsIs {
		slices.SortStableFunc(ips, func(a, b netip.Addr) int { return second(a, prefer) - second(b, prefer) })
	}
	return ips, nil
}

func second(ip netip.Addr, prefer Preference) int {
	if ip.Is4() == (prefer == IPv4) {
		return 0
	}
	return 1
}

// address returns an address at which a pod can be reached.
func address(n net.IPNet) (netip.Addr, error) {
	ip, ok := netip.AddrFromSlice(n.IP)
	ip = ip.Unmap()
	if !ok || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
		return netip.Addr{}, fmt.Errorf("%q is not a pod address", n.IP.String())
	}
	return ip, nil
}

// sameNamespace reports whether two paths are of one namespace. The path "" means the host's.
func sameNamespace(said, netns string) bool {
	if said == "" || filepath.Clean(said) == netns {
		return said != ""
	}
	a, err := os.Stat(said)
	if err != nil {
		return false
	}
	b, err := os.Stat(netns)
	return err == nil && os.SameFile(a, b)
}

// extra returns the recorded form of a result. It returns an error if the result could not be
// parsed again, for example because another interface has an invalid address: the result would be
// missing at DEL.
func extra(r types.Result) (raw json.RawMessage, err error) {
	defer recovered(&err)
	if raw, err = json.Marshal(r); err != nil {
		return nil, err
	}
	if len(raw) > maxExtra {
		return nil, network.Errorf(network.Unknown, "result has %d bytes; want at most %d", len(raw), maxExtra)
	}
	if err := checkResult(raw); err != nil {
		return nil, network.Errorf(network.Unknown, "result: %w", err)
	}
	return raw, nil
}

// holesIn returns an error if a list in a result contains null, which would make
// libcni's conversions panic.
func holesIn(stdout []byte) error {
	var lists struct {
		Interfaces []json.RawMessage `json:"interfaces"`
		IPs        []json.RawMessage `json:"ips"`
		Routes     []json.RawMessage `json:"routes"`
	}
	if err := json.Unmarshal(stdout, &lists); err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	for _, l := range []struct {
		name  string
		items []json.RawMessage
	}{{"interfaces", lists.Interfaces}, {"ips", lists.IPs}, {"routes", lists.Routes}} {
		if i := slices.IndexFunc(l.items, func(r json.RawMessage) bool { return string(r) == "null" }); i >= 0 {
			return fmt.Errorf("%s[%d] of the result is null", l.name, i)
		}
	}
	return nil
}
