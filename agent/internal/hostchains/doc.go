// Package hostchains keeps the chains of the machine's own firewall that others look
// for on a node, as the kubelet does (makeIPTablesUtilChains):
//
//	m, err := hostchains.New(hostchains.Config{Log: log})
//	err = m.Run(ctx) // until ctx ends
//
// KUBE-IPTABLES-HINT, empty, in table mangle of both families: programs in containers,
// such as CNI plugins, find by it whether the machine uses iptables over nf_tables or
// the older kind. KUBE-FIREWALL in table filter of IPv4, from INPUT and OUTPUT: it drops packets
// to 127.0.0.0/8 that come from elsewhere and belong to no connection, since kube-proxy
// may have the kernel route them. Its rule is that of kube-proxy.
//
// The machine's own iptables and ip6tables do it, since only they know which kind is
// in use; a family without its program is left alone, with a line in the log. Nothing
// is ever removed: kube-proxy shares the chains.
//
// # Ownership and faults
//
// [New] has no side effects. Run looks at once and every minute, and puts back what
// somebody has flushed; only what is missing is written. A program gets 10 s for a call,
// and is killed then; one that the kernel holds costs one goroutine, and its family
// is not looked at until it has ended. Failures are logged when they change, and tried
// again at the next look.
package hostchains
