package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Config configures the network. Only StateDir is required.
type Config struct {
	// StateDir is the directory in which the plugin stores the chosen subnet and the settings
	// that it makes on the machine. Other programs must not use it. It is created when needed.
	StateDir string
	// Name is the name of the bridge: at most 15 characters of [a-zA-Z0-9_-]. The default is nw0.
	Name string
	// Subnet is the pods' IPv4 subnet, of 8 to 29 bits. With the zero value, the plugin
	// chooses a /24 of 10.214.0.0/16 or, if none is free, of 192.168.192.0/18: the
	// first one that overlaps no route, address or name server of the node. It keeps
	// this choice. As long as pods have addresses of an earlier subnet, that subnet
	// stays in use.
	Subnet netip.Prefix
	// Subnet6 is an additional IPv6 subnet for pods, such as fd00:214::/64, with at least as many
	// addresses as Subnet. If it is the zero value, pods have no IPv6 addresses.
	Subnet6 netip.Prefix
	// SubnetsOf is the setting from which the program computed Subnet and Subnet6, such as podCIDR.
	// Errors then name this setting instead of the two fields.
	SubnetsOf string
	// MTU is the MTU of a new bridge and of pods, in bytes, from 576 (1280 with Subnet6) to
	// 65535. The default is the MTU of the default route's interface, or 1500 if there is no
	// default route.
	MTU int
	// Table is the name of the nftables tables: at most 64 characters of [a-zA-Z0-9_-]. The
	// default is nodewright.
	Table string
	// VethPrefix is the prefix of the pods' interfaces on the node: at most 4 characters of
	// [a-zA-Z0-9_]. The default is nw.
	VethPrefix string
	// ResolvConf are files with the node's name servers, in the form of resolv.conf(5). The
	// default is /etc/resolv.conf and the file of systemd-resolved.
	ResolvConf []string
	// Reach limits which ports of the node's own processes pods can connect to.
	Reach Reach
	// Reserved are TCP ports that no pod can have as host ports, such as the ports of the agent.
	// The agent may not listen on them yet when pods of an earlier process are recovered.
	Reserved []uint16
	// ListenOnHostPorts makes a socket listen on each TCP host port, for programs that open the ports
	// that listen in a network namespace on the machine as well, such as pasta. NAT rules send all
	// connections to the pods.
	ListenOnHostPorts bool
	Log               *zap.Logger // if nil, nothing is logged
}

// withDefaults sets the default names. Subnet and MTU keep their zero values, since their
// defaults depend on the node.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "nw0"
	}
	if c.Table == "" {
		c.Table = "nodewright"
	}
	if c.VethPrefix == "" {
		c.VethPrefix = "nw"
	}
	// With systemd-resolved the first file names only its stub at 127.0.0.53; the
	// servers behind it are in the second.
	if c.ResolvConf == nil {
		c.ResolvConf = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// subnetName and subnet6Name return the names that errors use for the settings of the
// subnets.
func (c Config) subnetName() string  { return cmp.Or(c.SubnetsOf, "Config.Subnet") }
func (c Config) subnet6Name() string { return cmp.Or(c.SubnetsOf, "Config.Subnet6") }

// validate returns every error of a configuration with defaults. Names are restricted to safe
// characters, since they become parts of paths below /proc/sys and of nftables messages.
func (c Config) validate() []error {
	var errs []error
	if c.StateDir == "" {
		errs = append(errs, errors.New("Config.StateDir is required"))
	}
	if !validIfname(c.Name) {
		errs = append(errs, fmt.Errorf("Config.Name %q: want 1 to %d of [a-zA-Z0-9_-]", c.Name, maxIfname))
	}
	if !validTable(c.Table) {
		errs = append(errs, fmt.Errorf("Config.Table %q: want 1 to %d of [a-zA-Z0-9_-]", c.Table, maxTable))
	}
	if !validName(c.VethPrefix, maxIfname-vethHex) || strings.Contains(c.VethPrefix, "-") {
		errs = append(errs, fmt.Errorf("Config.VethPrefix %q: want 1 to %d of [a-zA-Z0-9_]", c.VethPrefix, maxIfname-vethHex))
	}
	// The bridge must not have a name that a pod's interface may get.
	if isVethName(c.VethPrefix, c.Name) {
		errs = append(errs, fmt.Errorf("Config.Name %q: want a name that no pod's interface has", c.Name))
	}
	if c.Subnet != (netip.Prefix{}) {
		if err := validSubnet(c.Subnet); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", c.subnetName(), err))
		}
	}
	if err := c.Reach.validate(); err != nil {
		errs = append(errs, err)
	}
	// The minimum is higher with IPv6, which needs links of at least 1280 bytes.
	least := minMTU
	if c.Subnet6 != (netip.Prefix{}) {
		least = minMTU6
		if err := validSubnet6(c.Subnet6, c.Subnet); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", c.subnet6Name(), err))
		}
	}
	if c.MTU != 0 && (c.MTU < least || c.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("Config.MTU %d: want %d to %d, or 0 for that of the default route", c.MTU, least, maxMTU))
	}
	return errs
}

// Limits of a file of name servers. A larger file counts as empty, and servers beyond the limit are
// ignored.
const (
	maxResolvConf = 64 << 10 // bytes
	maxServers    = 64
)

// nameServers reads the name servers of the node. A missing or unreadable file counts as empty. A
// subnet that contained a name server would break the node's own name resolution.
func nameServers(files []string) []taken {
	var all []taken
	for _, file := range files {
		// Links are followed: /etc/resolv.conf is one on many systems.
		b, err := safefile.ReadLinked(file, maxResolvConf)
		if err != nil {
			continue
		}
		all = append(all, parseResolvConf(string(b))...)
	}
	return all
}

// parseResolvConf returns the addresses of the lines "nameserver ADDRESS"
// (resolv.conf(5)).
func parseResolvConf(text string) []taken {
	var all []taken
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(all) == maxServers {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			// The zone does not matter for overlaps, and a mapped address is an IPv4 address.
			addr = addr.WithZone("").Unmap()
			all = append(all, taken{netip.PrefixFrom(addr, addr.BitLen()), "name server " + addr.String()})
		}
	}
	return all
}
