package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The number of connections depends on pods and their peers, up to the kernel's nf_conntrack_max.
// So the list is filtered while it is read.
const (
	maxFlows      = 4096 // that are deleted after one reading
	maxFlowRounds = 64
	// ctNew is the subsystem's number in netlink messages; the types of messages
	// (IPCTNL_MSG_CT_...) are in the low byte.
	ctNew = unix.NFNL_SUBSYS_CTNETLINK << 8
)

// flow is a connection as the kernel lists it. Its slices point into the message; the
// method flows copies them.
type flow struct {
	proto uint8
	dst   netip.Addr
	port  uint16 // port of dst
	// answerer is the source of the replies. If the destination was translated, answerer is the
	// pod's address, and differs from dst.
	answerer netip.Addr // source of the replies
	original []byte     // attributes that identify the entry
	// zone is nil in the default zone. In another zone it is needed to identify the connection.
	zone []byte
}

// Attributes (nfnetlink_conntrack.h).
const (
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaProtoNum   = 1
	ctaDstPort    = 3
)

// parseFlow parses a message of the list, without its netlink header. ok is false for a truncated
// message and for a message without addresses; such entries are not deleted.
func parseFlow(b []byte) (f flow, ok bool) {
	if len(b) < nl.SizeofNfgenmsg {
		return f, false
	}
	ad, err := mdlayher.NewAttributeDecoder(b[nl.SizeofNfgenmsg:])
	if err != nil {
		return f, false
	}
	for ad.Next() {
		switch ad.Type() {
		case nl.CTA_TUPLE_ORIG:
			f.original = ad.Bytes()
			f.proto, _, f.dst, f.port = parseTuple(f.original)
		case nl.CTA_TUPLE_REPLY:
			_, f.answerer, _, _ = parseTuple(ad.Bytes())
		case nl.CTA_ZONE:
			f.zone = ad.Bytes()
		}
	}
	return f, ad.Err() == nil && f.dst.IsValid() && f.answerer.IsValid()
}

// parseTuple parses one direction of a connection: nested attributes for the
// addresses and the protocol. Missing values are zero.
func parseTuple(b []byte) (proto uint8, src, dst netip.Addr, dstPort uint16) {
	each(b, func(kind uint16, part []byte) {
		each(part, func(inner uint16, v []byte) {
			switch {
			case kind == ctaTupleIP && (inner == nl.CTA_IP_V4_SRC || inner == nl.CTA_IP_V6_SRC):
				src, _ = netip.AddrFromSlice(v)
			case kind == ctaTupleIP && (inner == nl.CTA_IP_V4_DST || inner == nl.CTA_IP_V6_DST):
				dst, _ = netip.AddrFromSlice(v)
			case kind == ctaTupleProto && inner == ctaProtoNum && len(v) == 1:
				proto = v[0]
			case kind == ctaTupleProto && inner == ctaDstPort && len(v) == 2:
				// Ports are in network byte order, as in the packets.
				dstPort = binary.BigEndian.Uint16(v)
			}
		})
	})
	return proto, src, dst, dstPort
}

// each calls f with the attributes of b. It stops at a truncated attribute, without an
// error.
func each(b []byte, f func(kind uint16, value []byte)) {
	ad, err := mdlayher.NewAttributeDecoder(b)
	if err != nil {
		return
	}
	for ad.Next() {
		f(ad.Type(), ad.Bytes())
	}
}

// udpFlows selects the connections of UDP host ports that lead to an outdated
// destination: as long as a peer continues to send, the kernel keeps using this
// destination. TCP does not need this: its connections end, and a reset informs the
// peer.
type udpFlows struct {
	claims map[claim]bool // of one address family, all UDP
	local  map[netip.Addr]bool
	pod    netip.Addr
	gone   bool // the pod is removed: selects its connections instead of those of others
}

// match reports whether a connection has to be deleted.
func (u udpFlows) match(f flow) bool {
	// For a removed pod, entries that lead to it are stale; for a new pod, entries that lead
	// elsewhere.
	if f.proto != unix.IPPROTO_UDP || (f.answerer == u.pod) != u.gone {
		return false
	}
	one := claim{V6: f.dst.Is6(), Addr: f.dst, Proto: f.proto, Port: f.port}
	// A claim of all addresses means only the node's own addresses: connections that pass through
	// the node may have the same port.
	all := one
	all.Addr = netip.Addr{}
	return u.claims[one] || u.claims[all] && (u.gone || u.local[f.dst] || f.dst.IsLoopback())
}

// forgetUDP deletes the kernel's entries of connections of a pod's UDP host ports. gone means
// that the pod is being torn down. forgetUDP reads the node's addresses once, and only if there
// is a UDP port. A failure of one address family does not stop the other.
func (l *links) forgetUDP(all []forward, p plan, gone bool) error {
	var local map[netip.Addr]bool
	var errs []error
	// The kernel's list is of one family at a time.
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		u := udpFlows{claims: map[claim]bool{}, pod: p.IPv4.Addr(), gone: gone}
		if family == unix.AF_INET6 {
			u.pod = p.IPv6.Addr()
		}
		for _, f := range all {
			if f.Proto == unix.IPPROTO_UDP && f.V6 == (family == unix.AF_INET6) {
				u.claims[f.claim] = true
			}
		}
		if len(u.claims) == 0 {
			continue
		}
		if local == nil {
			var err error
			if local, err = l.localAddresses(); err != nil {
				return fmt.Errorf("list addresses: %w", err)
			}
		}
		u.local = local
		errs = append(errs, l.forget(family, u.match))
	}
	return errors.Join(errs...)
}

// forget deletes the connections for which match returns true. It returns an error if
// new ones come faster than it deletes them.
func (l *links) forget(family uint8, match func(flow) bool) error {
	for range maxFlowRounds {
		found, again, err := l.flows(family, match)
		if err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		for _, f := range found {
			// An entry that timed out meanwhile counts as deleted.
			if err := l.deleteFlow(family, f); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("delete connection: %w", err)
			}
		}
		if !again {
			return nil
		}
	}
	return errors.New("new connections appear faster than they are deleted")
}

// flows returns at most maxFlows connections for which match returns true. The result again says
// that there may be more. The kernel sends the list in pieces; match is called for each piece as it
// arrives.
func (l *links) flows(family uint8, match func(flow) bool) (found []flow, again bool, err error) {
	r := l.request(ctNew|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	err = r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if f, ok := parseFlow(msg); ok && match(f) {
			// The message's buffer is reused for the next message.
			f.original, f.zone = append([]byte(nil), f.original...), append([]byte(nil), f.zone...)
			found = append(found, f)
		}
		again = len(found) == maxFlows
		// The rest of the list is not read: forget calls flows again after it has deleted these.
		return !again
	})
	// Without a match another read is useless: the table of a busy node changes all
	// the time.
	if errors.Is(err, netlink.ErrDumpInterrupted) { // others came meanwhile
		return found, len(found) > 0, nil
	}
	return found, again, err
}

// deleteFlow deletes one connection, by its original direction and its zone.
func (l *links) deleteFlow(family uint8, f flow) error {
	r := l.request(ctNew|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, f.original))
	if len(f.zone) > 0 {
		r.AddData(nl.NewRtAttr(nl.CTA_ZONE, f.zone))
	}
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
