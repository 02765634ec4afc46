//go:build linux

package bridge

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nodewright/nodewright/network"
)

// A restart keeps the rules that are there if they are its own, mends the entries,
// and makes all anew if somebody has changed a rule meanwhile.
func TestARestartKeepsTheRules(t *testing.T) {
	l := newLab(t)
	start := func(kept ...guest) *Plugin {
		t.Helper()
		p, err := l.make(Config{})
		if err != nil {
			t.Fatal(err)
		}
		p.table.flags = 0 // so that others may change it
		var all []network.Kept
		for _, g := range kept {
			all = append(all, g.Kept)
		}
		l.recovered(p, all...)
		return p
	}
	p := start()
	web := l.attach(p, "web", port("tcp", 8080, 80))
	l.attach(p, "lost", port("tcp", 8082, 80))
	p.Close()

	nft, err := nftables.New(nftables.WithNetNSFd(int(l.node.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func()) {
		t.Helper()
		f()
		if err := nft.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	table := &nftables.Table{Name: "nodewright", Family: nftables.TableFamilyINet}
	output := &nftables.Chain{Name: "output", Table: table}
	change(func() { nft.AddChain(&nftables.Chain{Name: "witness", Table: table}) })
	made := func() bool {
		t.Helper()
		_, err := nft.ListChain(table, "witness")
		return err != nil
	}

	p = start(web)
	l.holds(p, 1) // and not that of lost
	if made() {
		t.Error("the table was made anew")
	}
	p.Close()
	rules, err := nft.GetRules(table, output)
	if err != nil || len(rules) != 1 {
		t.Fatalf("rules %+v, %v", rules, err)
	}
	change(func() {
		nft.ReplaceRule(&nftables.Rule{Table: table, Chain: output, Handle: rules[0].Handle, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}})
	})
	p = start(web)
	l.holds(p, 1)
	if !made() {
		t.Error("the table was kept with a rule of somebody else")
	}
	l.detach(p, web)
}

// A call that goes on without its caller keeps what it needs until its end.
func TestCloseWaitsForCallsThatWereGivenUp(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := p.table.replace(l.ctx(), p.layout(), p.contents()); err != nil {
		t.Errorf("the call that goes on: %v", err)
	}
	if p.links == nil {
		t.Error("the sockets are closed under a call")
	}
	p.end()
	if p.links != nil {
		t.Error("the sockets stay open")
	}
	if err := p.begin(); codeOf(err) != network.Unavailable {
		t.Errorf("a call after Close: %v", err)
	}
}
