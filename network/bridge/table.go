package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	nftBuffer   = 4 << 20 // bytes, of the socket; a burst of messages is far smaller
	nftDeadline = 10 * time.Second
	nftTries    = 20 // until the owner of a table, which has just been killed, ends
	nftPause    = 50 * time.Millisecond
)

// table is the pair of nftables tables of this plugin: one of family inet, and one of family bridge
// with the same name. Both are changed in one transaction. The gate guards it; its methods must not
// be called concurrently. The socket for writes stays open, since it is the owner of the tables.
type table struct {
	ns   int // descriptor of the network namespace
	name string
	// flags are the flags of the table: owner and persist, or none.
	flags uint32

	conn *netlink.Conn
	// wrote is called with the netlink port of each socket before the socket changes
	// anything: events with that port are this plugin's own changes.
	wrote func(port uint32)
	// fault replaces the error of a commit in tests.
	fault func(error) error
}

// commit sends a transaction, and returns nil if the kernel has confirmed all of it. After an
// error, the kernel may have executed the transaction nevertheless. The socket is then closed,
// and the next socket becomes the owner of the tables.
func (t *table) commit(ctx context.Context, b *batch) error {
	if b.err != nil {
		return b.err
	}
	if len(b.msgs) == 0 {
		return nil
	}
	err := t.exchange(ctx, b.msgs)
	if t.fault != nil {
		err = t.fault(err)
	}
	if err != nil {
		t.close() // answers may still arrive
	}
	return err
}

// exchange sends the messages as one transaction and waits for the answer, until ctx's
// deadline or nftDeadline, whichever is earlier. Cancelling ctx does not end the wait.
func (t *table) exchange(ctx context.Context, msgs []netlink.Message) error {
	conn, err := t.dial()
	if err != nil {
		return err
	}
	until := time.Now().Add(nftDeadline)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := conn.SetDeadline(until); err != nil {
		return err
	}
	// The messages that begin and end a transaction (NFNL_MSG_BATCH_BEGIN,
	// NFNL_MSG_BATCH_END) name the subsystem that it is for.
	edge := func(kind uint16) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	all := append([]netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}, msgs...)
	// One acknowledgement is enough: it comes after the commit and all errors.
	all[len(all)-1].Header.Flags |= netlink.Acknowledge
	all = append(all, edge(unix.NFNL_MSG_BATCH_END))
	sent, err := conn.SendMessages(all)
	if err != nil {
		return err
	}
	last := sent[len(sent)-2].Header.Sequence
	// Receive returns errors as such; other answers are ignored.
	for {
		replies, err := conn.Receive()
		if err != nil {
			return err
		}
		for _, r := range replies {
			if r.Header.Type == netlink.Error && r.Header.Sequence == last {
				return nil
			}
		}
	}
}

// dial opens the socket, unless it is open.
func (t *table) dial() (*netlink.Conn, error) {
	if t.conn != nil {
		return t.conn, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: t.ns})
	if err != nil {
		return nil, err
	}
	// Without the privilege they are as large as the system allows.
	_ = conn.SetReadBuffer(nftBuffer)
	_ = conn.SetWriteBuffer(nftBuffer)
	port, err := portOf(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if t.wrote != nil {
		t.wrote(port)
	}
	t.conn = conn
	return conn, nil
}

// portOf returns the socket's netlink port, which the kernel has given to it and names
// in events.
func portOf(conn *netlink.Conn) (port uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var addr unix.Sockaddr
		if addr, err = unix.Getsockname(int(fd)); err == nil {
			if nl, ok := addr.(*unix.SockaddrNetlink); ok {
				port = nl.Pid
			}
		}
	})
	return port, errors.Join(ctlErr, err)
}

// close closes the writing socket. An owned table loses its owner, and is kept
// because it persists.
func (t *table) close() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
}

// reader returns a connection for reads. It is not the connection for transactions, so that the
// answers to both are not mixed.
func (t *table) reader() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(t.ns), nftables.WithSockOptions(func(c *netlink.Conn) error {
		_ = c.SetReadBuffer(nftBuffer)
		return c.SetDeadline(time.Now().Add(nftDeadline))
	}))
}

// exists returns the families in which there is a table of the name.
func (t *table) exists(name string) (families []byte, err error) {
	r, err := t.reader()
	if err != nil {
		return nil, err
	}
	for _, family := range []byte{unix.NFPROTO_INET, unix.NFPROTO_BRIDGE} {
		all, err := r.ListTablesOfFamily(nftables.TableFamily(family))
		if err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		if slices.ContainsFunc(all, func(one *nftables.Table) bool { return one.Name == name && byte(one.Family) == family }) {
			families = append(families, family)
		}
	}
	return families, nil
}

// holds reports whether the table in the kernel has these chains, the right number of rules, and
// exactly these elements. Rules are only counted. Other programs cannot change the rules of an
// owned table. And if rules were compared and the kernel showed one in another form, the table
// would be replaced again and again.
func (t *table) holds(l layout, want contents) (bool, error) {
	d, err := t.differs(l, want)
	return d.chains && len(d.add)+len(d.del) == 0, err
}

// difference is the difference between a table and its wanted state.
type difference struct {
	chains   bool // all are there, with as many rules as there should be
	rules    bool // the rules are as wanted
	add, del []element
}

// differs reads the table and compares it. A missing table, chain or map is a difference, not an
// error.
func (t *table) differs(l layout, want contents) (d difference, err error) {
	there, err := t.exists(t.name)
	if err != nil || !slices.Equal(there, l.families()) {
		return d, err
	}
	r, err := t.reader()
	if err != nil {
		return d, err
	}
	in := func(family byte) *nftables.Table {
		return &nftables.Table{Name: t.name, Family: nftables.TableFamily(family)}
	}
	d.rules = true
	// The chain without rules is needed too: its name identifies the rules of this layout.
	for _, c := range append(l.chains(), chain{name: l.mark()}) {
		of := in(c.of())
		rules, err := r.GetRules(of, &nftables.Chain{Name: c.name, Table: of})
		if errors.Is(err, os.ErrNotExist) {
			return difference{}, nil
		}
		if err != nil || len(rules) != len(c.rules) {
			return difference{}, err
		}
		for i, one := range rules {
			d.rules = d.rules && sameRule(c.of(), one.Exprs, c.rules[i])
		}
	}
	// Entries are few and are compared one by one.
	for _, m := range l.mappings() {
		found, err := r.GetSetElements(&nftables.Set{Table: in(setFamily(m.name)), Name: m.name})
		if err != nil {
			return difference{}, nil //nolint:nilerr // it differs, and the details do not matter
		}
		have := make(map[string]string, len(found))
		for _, e := range found {
			have[string(e.Key)] = string(e.Val)
			if val, ok := want[m.name][string(e.Key)]; !ok || val != string(e.Val) {
				d.del = append(d.del, element{m.name, string(e.Key), string(e.Val)})
			}
		}
		for _, e := range (contents{m.name: want[m.name]}).elements() {
			if val, ok := have[e.key]; !ok || val != e.val {
				d.add = append(d.add, e)
			}
		}
	}
	d.chains = true
	return d, nil
}

// sameRule reports whether the kernel shows a rule as it was given. A rule shown in
// another form counts as different: then the table is created anew, which is always
// safe.
func sameRule(family byte, have, want []expr.Any) bool {
	return slices.EqualFunc(have, want, func(a, b expr.Any) bool {
		x, errX := expr.Marshal(family, a)
		y, errY := expr.Marshal(family, b)
		return errX == nil && errY == nil && bytes.Equal(x, y)
	})
}

// dropsOthers reports for which address families a table of this package drops forwarding between
// other interfaces. It leaves out the table except. Such a table belongs to another agent of the
// node, or to an agent whose state was lost. Only an agent that has turned forwarding on drops
// packets in this way.
func (t *table) dropsOthers(except string) (v4, v6 bool, err error) {
	r, err := t.reader()
	if err != nil {
		return false, false, err
	}
	all, err := r.ListChains()
	if err != nil {
		return false, false, fmt.Errorf("list chains: %w", err)
	}
	for _, c := range all {
		if c.Table.Family != nftables.TableFamilyINet || c.Table.Name == except || c.Name != forwardChain {
			continue
		}
		rules, err := r.GetRules(c.Table, c)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, false, err
		}
		for _, one := range rules {
			v4 = v4 || sameRule(unix.NFPROTO_INET, one.Exprs, dropOthers(unix.NFPROTO_IPV4))
			v6 = v6 || sameRule(unix.NFPROTO_INET, one.Exprs, dropOthers(unix.NFPROTO_IPV6))
		}
	}
	return v4, v6, nil
}

// served returns the name of another agent's table that has an element for the same port. It
// returns "" if there is none, or if the tables cannot be read.
func (t *table) served(want element) string {
	r, err := t.reader()
	if err != nil {
		return ""
	}
	all, err := r.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return ""
	}
	for _, one := range all {
		if one.Name == t.name {
			continue
		}
		// Tables of other programs have no map of this name.
		found, _ := r.GetSetElements(&nftables.Set{Table: one, Name: want.set})
		if slices.ContainsFunc(found, func(e nftables.SetElement) bool { return string(e.Key) == want.key }) {
			return one.Name
		}
	}
	return ""
}

// take makes the table have exactly these elements. If the table has the right rules already, they
// are kept: while a base chain is replaced, even in one transaction, a packet can miss both the old
// and the new chain.
func (t *table) take(ctx context.Context, l layout, want contents) error {
	return t.retry(ctx, l, want, func() error {
		if d, err := t.differs(l, want); err == nil && d.chains && d.rules {
			b := &batch{}
			t.own(b, l) // from now on
			b.change(t.name, unix.NFT_MSG_DELSETELEM, d.del)
			b.change(t.name, unix.NFT_MSG_NEWSETELEM, d.add)
			if t.commit(ctx, b) == nil {
				return nil
			}
		}
		// Also if only the entries could not be changed.
		return t.tryReplace(ctx, l, want)
	})
}

// replace creates the tables again in one transaction.
func (t *table) replace(ctx context.Context, l layout, want contents) error {
	return t.retry(ctx, l, want, func() error { return t.tryReplace(ctx, l, want) })
}

// retry repeats do after errors that may disappear in a moment, until do succeeds or ctx ends.
// It makes at most nftTries tries, with pauses of nftPause. Together they take a second.
func (t *table) retry(ctx context.Context, l layout, want contents, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil {
			return nil
		}
		// An error may come after the commit, for example from a full receive
		// buffer.
		if ok, readErr := t.holds(l, want); ok && readErr == nil {
			return nil
		}
		// The owner may be an agent that is about to end, and other programs may
		// have created or removed this table meanwhile.
		if !passing(err) || try == nftTries {
			return fmt.Errorf("replace table inet %s: %w", t.name, err)
		}
		select {
		case <-time.After(nftPause):
		case <-ctx.Done():
			return fmt.Errorf("replace table inet %s: %w: %w", t.name, context.Cause(ctx), err)
		}
	}
}

// passing reports whether an error may disappear in a moment. EPERM is the error
// for a table that another socket owns; ENOENT and EEXIST are races with other
// programs.
func passing(err error) bool {
	return slices.ContainsFunc([]error{unix.EPERM, unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.ENOBUFS, unix.EINTR, unix.EAGAIN}, func(e error) bool { return errors.Is(err, e) })
}

// tryReplace creates the table again once. If another program creates or removes it meanwhile, the
// transaction fails, and retry tries again.
func (t *table) tryReplace(ctx context.Context, l layout, want contents) error {
	there, err := t.exists(t.name)
	if err != nil {
		return err
	}
	return t.commit(ctx, wholeTable(t.name, t.flags, there, l, want))
}

// own makes the socket the owner of the tables.
func (t *table) own(b *batch, l layout) {
	for _, family := range l.families() {
		b.addTable(family, t.name, t.flags)
	}
}

// update adds and deletes elements in one transaction. wanted returns the content that
// the maps should have afterwards. If it is not clear from the kernel's answer whether
// the transaction was done, the table is read, and replaced if its content differs. The
// caller holds the gate.
func (t *table) update(ctx context.Context, l layout, wanted func() contents, add, del []element) error {
	if len(add)+len(del) == 0 {
		return nil
	}
	b := &batch{}
	if t.conn == nil {
		t.own(b, l) // a socket that is new becomes the owner
	}
	b.change(t.name, unix.NFT_MSG_DELSETELEM, del)
	b.change(t.name, unix.NFT_MSG_NEWSETELEM, add)
	if t.commit(ctx, b) == nil {
		return nil
	}
	want := wanted()
	if ok, err := t.holds(l, want); ok && err == nil {
		return nil
	}
	return t.replace(ctx, l, want)
}

// remove deletes the tables of a name; missing tables are no error. It is also called
// for tables of earlier configurations.
func (t *table) remove(ctx context.Context, name string) error {
	for try := 1; ; try++ {
		there, err := t.exists(name)
		if err != nil || len(there) == 0 {
			return err
		}
		b := &batch{}
		for _, family := range there {
			b.delTable(family, name)
		}
		err = t.commit(ctx, b)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if try == nftTries || !passing(err) {
			return fmt.Errorf("remove table inet %s: %w", name, err)
		}
		select {
		case <-time.After(nftPause):
		case <-ctx.Done():
			return fmt.Errorf("remove table inet %s: %w", name, context.Cause(ctx))
		}
	}
}
