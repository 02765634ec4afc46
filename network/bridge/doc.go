// Package bridge gives pods a network on a machine without network plugins: a
// bridge, an address for each pod, masquerading, and host ports. It runs no
// program; everything is done by netlink.
//
// It is for a single machine. In a cluster the pods of other nodes could not reach
// its addresses: use network/cni there.
//
// # What it creates
//
// In the network namespace of the thread that calls [New]:
//
//   - the bridge nw0 with the first address of the subnet, at the first pod;
//   - for each pod a veth, named nw and 11 hex digits, whose other end is eth0 of
//     the pod;
//   - two nftables tables, inet nodewright and bridge nodewright, with a constant
//     number of rules: maps hold the host ports, and sets what pods may send from. A
//     removed table is restored at once; from Linux 6.9 on the plugin owns them, so
//     that "nft flush ruleset" does not remove them;
//   - permanent entries for each pod: for its address on the bridge, and for its MAC
//     address at its port. The pod has one of the gateway;
//   - net.ipv4.ip_forward = 1, if it is 0. If this plugin set it, forwarding
//     between other interfaces is dropped. The same holds for
//     net.ipv6.conf.all.forwarding with an IPv6 subnet: interfaces that accept
//     router advertisements (accept_ra 1) continue to do so (2).
//
// [Plugin.Reset] removes all of it. Tables of other programs are never changed: if
// one of them drops pods' packets, [Plugin.Advice] names the rule to add.
//
// # Several plugins on a node
//
// Plugins with different names, tables, prefixes and state directories can share a
// node: each has its own bridge, table and subnet. Their bridges are in one interface
// group, whose packets none of them drops. If one of them turned forwarding on, the
// Reset of the last one turns it off. A plugin refuses a host port that another plugin
// serves.
//
// # Addresses
//
// Addresses are derived only from the records given to [Plugin.Recovered], so that
// none can leak. The address that has been free for the longest time is allocated
// next. A pod's MAC address is derived from its IPv4 address, so that neighbour
// caches stay valid when an address is reused.
//
// # What pods can send
//
// A pod can send only from its own MAC and IP addresses, even if its processes forge
// others. This also holds for the sender fields of ARP and of neighbour discovery.
// Frames of other protocols than IPv4, IPv6 and ARP, tagged frames, router
// advertisements, redirects and answers of DHCP are dropped. Without Subnet6, all of
// IPv6 is dropped. The bridge learns no addresses from pods, and sends frames for
// unknown addresses to none of them. On a kernel without tables of family bridge
// (CONFIG_NF_TABLES_BRIDGE), a pod can forge the address of another pod in packets to
// pods of its node; [Plugin.Advice] says so. [Config.Reach] says which ports of the
// node pods can reach. Pods can always reach each other.
//
// # Host ports
//
// Host ports answer on every address of the node or on the requested one, to other
// machines, to the node (127.0.0.1 included), to other pods and to the pod itself.
// They do not answer on [::1], for which Linux has no NAT; a port requested on
// 127.0.0.1 answers only to the node. Bandwidth limits are not supported; the
// result has a warning.
//
// A host port is taken as a process takes one, with a bound socket. A port on which a
// process of the node listens is refused, with the name of the process. While a pod has
// the port, a process that tries to listen on it gets an error. If a process took the
// port while no agent ran, the recovered pod loses the port. If a connection of the
// node uses the port as its source port while the pod starts, no socket holds it.
//
// # Limits
//
// [Plugin.Advice] does not see chains of iptables-legacy. If this plugin turned
// forwarding on and bridge-nf-call-iptables is 1, packets between the ports of
// other bridges count as forwarded and are dropped: turn forwarding on in sysctl.d
// there. When a table without owner (before Linux 6.9) is removed, packets of
// established connections that arrive before it is restored, some milliseconds
// later, are not translated: the node answers those of TCP with a reset.
//
// Tier: beta.
package bridge
