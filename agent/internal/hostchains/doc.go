// Package hostchains maintains two iptables chains of the machine that other programs
// expect on a node, as the kubelet does (makeIPTablesUtilChains):
//
//	m, err := hostchains.New(hostchains.Config{Log: log})
//	err = m.Run(ctx) // until ctx ends
//
// KUBE-IPTABLES-HINT is an empty chain in table mangle of IPv4 and IPv6. It shows programs in
// containers, such as CNI plugins, whether the machine uses iptables over nf_tables or the
// legacy kind. KUBE-FIREWALL is a chain in table filter of IPv4, to which INPUT and OUTPUT jump.
// It drops packets to 127.0.0.0/8 that come from other addresses and belong to no connection:
// kube-proxy may have configured the kernel to route such packets. kube-proxy creates the same
// rule.
//
// The package runs the machine's own iptables and ip6tables, since only these know
// which kind is in use. If one of the programs is missing, this is logged, and its
// family is skipped. Nothing is ever removed, since kube-proxy uses the chains too.
//
// # Ownership and faults
//
// [New] has no side effects. Run checks the chains at the start and every minute, and
// creates only what is missing, for example after a flush. A call of a program is killed
// after 10 s. If the program cannot be killed, one goroutine waits for it, and its
// family is not checked until it has ended. A failure is logged when it changes, and the
// next check tries again.
package hostchains
