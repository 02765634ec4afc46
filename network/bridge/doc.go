// Package bridge gives pods a network on a machine that has nothing installed
// for it: a bridge, an address for each pod, a way out, and host ports. It runs
// no program; all is done by netlink.
//
// It is for a machine that stands alone. In a cluster the pods of other nodes
// could not reach its addresses: use network/cni there.
//
// # What it makes
//
// In the network namespace of the thread that calls [New]:
//
//   - the bridge nw0 with the first address of the subnet, at the first pod;
//   - for each pod a veth, named nw and 11 hex digits, whose other end is eth0 of
//     the pod;
//   - one table of nftables, inet nodewright, whose number of rules is constant:
//     maps hold the host ports. A table that is lost is put back at once, and from
//     Linux 6.9 on it is owned by the plugin, so that "nft flush ruleset" passes
//     it by;
//   - net.ipv4.ip_forward, if it is 0. As long as it was this plugin that set it,
//     forwarding between other interfaces stays dropped. So with
//     net.ipv6.conf.all.forwarding, if a subnet of IPv6 is given: interfaces that
//     took router advertisements (accept_ra 1) go on doing so (2).
//
// [Plugin.Reset] takes back all of it. Tables of others are never edited: where one
// of them drops what pods send, [Plugin.Advice] says so, with the rule to add.
//
// # Several on a node
//
// Plugins with other names, tables, prefixes and state directories share a node: each
// has its own bridge, table and subnet. Their bridges are in one group of interfaces, whose
// packets none of them drops; forwarding that one of them turned on is turned off by the
// last one's Reset. A host port that another one serves is refused.
//
// # Addresses
//
// Addresses are known from the records that [Plugin.Recovered] is given and from
// nothing else, so none can leak. The one that has been free for longest is given
// next. A pod's MAC address is made of its IPv4 address, so that the neighbours'
// caches stay right when an address is used again.
//
// # Host ports
//
// They answer on every address of the node, or on the one that is asked for, to
// other machines, to the node (127.0.0.1 too), to other pods and to the pod
// itself. They do not answer on [::1], for which Linux has no NAT, and a port that
// is asked for on 127.0.0.1 answers to the node alone. Bandwidth limits are not
// served; the result warns of them.
//
// # Limits
//
// Chains of iptables-legacy are not seen by [Plugin.Advice]. Where this plugin turned
// forwarding on and bridge-nf-call-iptables is 1, what other bridges of the node
// carry between their ports counts as forwarded, and is dropped: turn forwarding
// on in sysctl.d there. When a table that is not owned is removed (before Linux
// 6.9), packets of established connections that come before it is back, some
// milliseconds later, find no translation: the node answers those of TCP with a reset.
//
// Tier: beta.
package bridge
