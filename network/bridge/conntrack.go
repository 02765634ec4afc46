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

// Pods and their peers decide how many connections there are, up to the kernel's
// nf_conntrack_max: the list is read as it comes, and only what is deleted is kept.
const (
	maxFlows      = 4096 // that are deleted after one reading
	maxFlowRounds = 64
	ctNew         = unix.NFNL_SUBSYS_CTNETLINK << 8
)

// flow is a connection as the kernel lists it.
type flow struct {
	proto    uint8
	dst      netip.Addr
	port     uint16     // of dst
	answerer netip.Addr // who sends what comes back
	original []byte     // attributes that name it
	zone     []byte
}

// Attributes (nfnetlink_conntrack.h).
const (
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaProtoNum   = 1
	ctaDstPort    = 3
)

// parseFlow reads a message of the list, without its netlink header.
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
				dstPort = binary.BigEndian.Uint16(v)
			}
		})
	})
	return proto, src, dst, dstPort
}

// each calls f with the attributes of b, as far as they can be read.
func each(b []byte, f func(kind uint16, value []byte)) {
	ad, err := mdlayher.NewAttributeDecoder(b)
	if err != nil {
		return
	}
	for ad.Next() {
		f(ad.Type(), ad.Bytes())
	}
}

// udpFlows selects the connections of UDP host ports that lead elsewhere than
// they are to: a peer that goes on sending would keep the old way for ever.
type udpFlows struct {
	claims map[claim]bool // of one address family, all UDP
	local  map[netip.Addr]bool
	pod    netip.Addr
	gone   bool // the pod: what leads to it is meant, and otherwise what does not
}

func (u udpFlows) match(f flow) bool {
	if f.proto != unix.IPPROTO_UDP || (f.answerer == u.pod) != u.gone {
		return false
	}
	one := claim{v6: f.dst.Is6(), addr: f.dst, proto: f.proto, port: f.port}
	all := one
	all.addr = netip.Addr{}
	return u.claims[one] || u.claims[all] && (u.gone || u.local[f.dst] || f.dst.IsLoopback())
}

// forgetUDP deletes the kernel's entries of connections of a pod's UDP host ports.
func (l *links) forgetUDP(all []forward, p plan, gone bool) error {
	var local map[netip.Addr]bool
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		u := udpFlows{claims: map[claim]bool{}, pod: p.IPv4.Addr(), gone: gone}
		if family == unix.AF_INET6 {
			u.pod = p.IPv6.Addr()
		}
		for _, f := range all {
			if f.proto == unix.IPPROTO_UDP && f.v6 == (family == unix.AF_INET6) {
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

// forget deletes the connections that match.
func (l *links) forget(family uint8, match func(flow) bool) error {
	for range maxFlowRounds {
		found, again, err := l.flows(family, match)
		if err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		for _, f := range found {
			if err := l.deleteFlow(family, f); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("delete connection: %w", err)
			}
		}
		if !again {
			return nil
		}
	}
	return errors.New("more connections come than are deleted")
}

// flows lists connections that match; again says that there may be others.
func (l *links) flows(family uint8, match func(flow) bool) (found []flow, again bool, err error) {
	r := l.request(ctNew|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	err = r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if f, ok := parseFlow(msg); ok && match(f) {
			f.original, f.zone = append([]byte(nil), f.original...), append([]byte(nil), f.zone...)
			found = append(found, f)
		}
		again = len(found) == maxFlows
		return !again
	})
	if errors.Is(err, netlink.ErrDumpInterrupted) { // others came meanwhile
		return found, len(found) > 0, nil
	}
	return found, again, err
}

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
