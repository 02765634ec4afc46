package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The flags of a table (nf_tables.h). Only the socket that owns a table can change
// it; a persistent one loses its owner with the socket, and is kept.
const (
	tableOwner   = 0x2 // NFT_TABLE_F_OWNER, Linux 5.12
	tablePersist = 0x4 // NFT_TABLE_F_PERSIST, Linux 6.9
)

// nfAccept is the policy accept, which all our chains have (netfilter.h).
const nfAccept = 1

// maxElements limits the entries of a message: the kernel allocates an object for each, and an
// attribute has at most 64 KiB.
const maxElements = 100

// contents maps the name of a map to its entries. Keys and values are the bytes of the kernel's
// registers.
type contents map[string]map[string]string

// add adds an entry, or replaces the entry with the same key.
func (c contents) add(e element) {
	if c[e.set] == nil {
		c[e.set] = map[string]string{}
	}
	c[e.set][e.key] = e.val
}

// size counts the entries of all maps.
func (c contents) size() int {
	n := 0
	for _, m := range c {
		n += len(m)
	}
	return n
}

// elements returns all entries in a fixed order. The method batch.change needs this order: it
// combines successive entries of the same map into one message.
func (c contents) elements() []element {
	all := make([]element, 0, c.size())
	for set, m := range c {
		for key, val := range m {
			all = append(all, element{set, key, val})
		}
	}
	slices.SortFunc(all, element.compare)
	return all
}

func (e element) compare(o element) int {
	return cmp.Or(cmp.Compare(e.set, o.set), cmp.Compare(e.key, o.key))
}

// A batch has the messages of one transaction, without its begin and its end. The kernel executes
// all of them or none.
type batch struct {
	msgs []netlink.Message
	err  error // the first one of encoding
}

// put appends a message. The first error of encoding is stored in err, and commit
// returns it.
func (b *batch) put(family byte, kind uint16, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) {
	ae := netlink.NewAttributeEncoder()
	// nf_tables uses network byte order, unlike rtnetlink.
	ae.ByteOrder = binary.BigEndian
	encode(ae)
	data, err := ae.Encode()
	if err != nil && b.err == nil {
		b.err = err
	}
	b.msgs = append(b.msgs, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		// struct nfgenmsg: family, version, resource.
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	})
}

// nested encodes an attribute with nested attributes, in the byte order of the
// batch.
func nested(ae *netlink.AttributeEncoder, kind uint16, encode func(*netlink.AttributeEncoder)) {
	ae.Nested(kind, func(n *netlink.AttributeEncoder) error {
		n.ByteOrder = binary.BigEndian
		encode(n)
		return nil
	})
}

// addTable adds a table. An existing table is kept, and owned by the socket if
// flags say so.
func (b *batch) addTable(family byte, name string, flags uint32) {
	b.put(family, unix.NFT_MSG_NEWTABLE, netlink.Create, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_TABLE_NAME, name)
		ae.Uint32(unix.NFTA_TABLE_FLAGS, flags)
	})
}

// delTable deletes a table with its content; a missing table fails the transaction.
func (b *batch) delTable(family byte, name string) {
	b.put(family, unix.NFT_MSG_DELTABLE, 0, func(ae *netlink.AttributeEncoder) { ae.String(unix.NFTA_TABLE_NAME, name) })
}

// addMapping adds a map or a set without entries. id names it within the transaction.
func (b *batch) addMapping(table string, id uint32, m mapping) {
	b.put(setFamily(m.name), unix.NFT_MSG_NEWSET, netlink.Create, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_SET_TABLE, table)
		ae.String(unix.NFTA_SET_NAME, m.name)
		ae.Uint32(unix.NFTA_SET_KEY_TYPE, m.keyType)
		ae.Uint32(unix.NFTA_SET_KEY_LEN, m.keyLen)
		if m.valLen > 0 {
			ae.Uint32(unix.NFTA_SET_FLAGS, unix.NFT_SET_MAP)
			ae.Uint32(unix.NFTA_SET_DATA_TYPE, m.valType)
			ae.Uint32(unix.NFTA_SET_DATA_LEN, m.valLen)
		}
		ae.Uint32(unix.NFTA_SET_ID, id)
	})
}

// addChain adds a chain. A base chain accepts packets that no rule drops.
func (b *batch) addChain(table string, c chain) {
	b.put(c.of(), unix.NFT_MSG_NEWCHAIN, netlink.Create, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_CHAIN_TABLE, table)
		ae.String(unix.NFTA_CHAIN_NAME, c.name)
		if c.kind == "" {
			return
		}
		nested(ae, unix.NFTA_CHAIN_HOOK, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.NFTA_HOOK_HOOKNUM, c.hook)
			ae.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.priority))
		})
		ae.Uint32(unix.NFTA_CHAIN_POLICY, nfAccept)
		ae.String(unix.NFTA_CHAIN_TYPE, c.kind)
	})
}

// addRule appends a rule to a chain.
func (b *batch) addRule(table string, c chain, exprs []expr.Any) {
	b.put(c.of(), unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_RULE_TABLE, table)
		ae.String(unix.NFTA_RULE_CHAIN, c.name)
		ae.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
			for _, e := range exprs {
				// The library encodes expressions; only the messages around them
				// are built here.
				data, err := expr.Marshal(c.of(), e)
				if err != nil {
					return err
				}
				list.Bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, data)
			}
			return nil
		})
	})
}

// change adds or deletes entries. kind is NFT_MSG_NEWSETELEM or NFT_MSG_DELSETELEM. The entries
// must be in the order of contents.elements.
func (b *batch) change(table string, kind uint16, all []element) {
	var flags netlink.HeaderFlags
	if kind == unix.NFT_MSG_NEWSETELEM {
		flags = netlink.Create
	}
	for len(all) > 0 {
		n := 1
		// Each message has entries of one map only.
		for n < len(all) && n < maxElements && all[n].set == all[0].set {
			n++
		}
		part := all[:n]
		all = all[n:]
		b.put(setFamily(part[0].set), kind, flags, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.NFTA_SET_ELEM_LIST_TABLE, table)
			ae.String(unix.NFTA_SET_ELEM_LIST_SET, part[0].set)
			nested(ae, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) {
				for _, e := range part {
					nested(list, unix.NFTA_LIST_ELEM, func(ae *netlink.AttributeEncoder) {
						nested(ae, unix.NFTA_SET_ELEM_KEY, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.NFTA_DATA_VALUE, []byte(e.key)) })
						// A deletion needs only the key.
						if kind == unix.NFT_MSG_NEWSETELEM && e.val != "" {
							nested(ae, unix.NFTA_SET_ELEM_DATA, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.NFTA_DATA_VALUE, []byte(e.val)) })
						}
					})
				}
			})
		})
	}
}

// wholeTable returns a transaction that replaces the tables. Packets see the old or the new
// rules, never none. existing has the families in which the table exists, since deleting a
// missing table would fail.
func wholeTable(name string, flags uint32, existing []byte, l layout, c contents) *batch {
	b := &batch{}
	for _, family := range existing {
		b.delTable(family, name)
	}
	for _, family := range l.families() {
		b.addTable(family, name, flags)
	}
	b.addRules(name, l)
	// The mark is added in the same transaction, so it always belongs to these rules.
	b.addChain(name, chain{name: l.mark()})
	b.change(name, unix.NFT_MSG_NEWSETELEM, c.elements())
	return b
}

// addRules adds everything of a table except the elements. Chains come before rules, since rules
// jump to chains. The order is fixed, since mark is a hash of the rules.
func (b *batch) addRules(table string, l layout) {
	for i, m := range l.mappings() {
		b.addMapping(table, uint32(i+1), m)
	}
	all := l.chains()
	for _, one := range all {
		b.addChain(table, one)
	}
	for _, one := range all {
		for _, r := range one.rules {
			b.addRule(table, one, r)
		}
	}
}

// mark returns the name of a chain without rules. It has a hash of the rules, by which
// another process recognizes them. The table's name is not part of the hash.
func (l layout) mark() string {
	b := &batch{}
	b.addRules("", l)
	h := sha256.New()
	for _, m := range b.msgs {
		_, _ = h.Write(m.Data)
	}
	return fmt.Sprintf("rules_%x", h.Sum(nil)[:8])
}
