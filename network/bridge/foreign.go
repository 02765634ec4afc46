package bridge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// maxForeign limits the chains reported by Advice.
const maxForeign = 16 // chains

// dropping is a base chain of another program that drops packets that none of its
// rules accepts. In nftables a packet has to pass all base chains of a hook: an
// accept in this package's table does not prevent such a drop.
type dropping struct {
	family, table, chain string
	into                 string // the chain for rules of the node's owner
	in, out              bool   // the chain accepts packets from the bridge (in) or to it (out)
}

// advice returns a sentence for people, with the commands that add the missing rules.
func (d dropping) advice(bridge string) string {
	where := fmt.Sprintf("%s %s %s", d.family, d.table, d.into)
	var rules []string
	if !d.in {
		// "insert", not "add": the rule has to precede the rules that drop.
		rules = append(rules, fmt.Sprintf("nft insert rule %s iifname %q accept", where, bridge))
	}
	if !d.out {
		rules = append(rules, fmt.Sprintf("nft insert rule %s oifname %q accept", where, bridge))
	}
	text := fmt.Sprintf("the chain %s of table %s %s drops what is forwarded from and to pods; to allow it: %s",
		d.chain, d.family, d.table, strings.Join(rules, "; "))
	// firewalld rewrites its table at each reload, and a rule added with nft would be lost.
	if strings.HasPrefix(d.table, "firewalld") {
		text += fmt.Sprintf(", or firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload", bridge)
	}
	return text
}

// familyNames has the families whose chains see the pods' packets, as nft names them.
var familyNames = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// droppingChains returns the base chains of other programs that drop pods' packets:
// those with the policy drop. Single rules that drop are not searched. iptables-nft
// is included, since its chains are nftables' own.
func (t *table) droppingChains(bridge string, with6 bool) ([]dropping, error) {
	r, err := t.reader()
	if err != nil {
		return nil, err
	}
	all, err := r.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var found []dropping
	for _, c := range all {
		family := familyNames[c.Table.Family]
		if family == "" || family == "ip6" && !with6 || family == "inet" && c.Table.Name == t.name {
			continue
		}
		// Pods' packets are forwarded. A chain without a hook runs only if another chain jumps to
		// it.
		if c.Hooknum == nil || *c.Hooknum != unix.NF_INET_FORWARD || c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop {
			continue
		}
		d := dropping{family: family, table: c.Table.Name, chain: c.Name, into: c.Name}
		// Docker reserves this chain for the administrator, and rewrites its other chains.
		if slices.ContainsFunc(all, func(o *nftables.Chain) bool {
			return o.Table.Family == c.Table.Family && o.Table.Name == c.Table.Name && o.Name == "DOCKER-USER"
		}) {
			d.into = "DOCKER-USER"
		}
		for _, name := range slices.Compact([]string{d.chain, d.into}) {
			// A rule with an expression that cannot be read counts as accepting nothing.
			rules, _ := r.GetRules(c.Table, &nftables.Chain{Name: name, Table: c.Table})
			for _, one := range rules {
				in, out := accepts(one.Exprs, bridge)
				d.in, d.out = d.in || in, d.out || out
			}
		}
		if !d.in || !d.out {
			found = append(found, d)
		}
		// This also limits the rules that are read.
		if len(found) == maxForeign {
			break
		}
	}
	return found, nil
}

// accepts reports whether a rule accepts all packets from an interface, or to it.
// Counters are no condition. A rule with any further condition does not accept all
// packets of pods.
func accepts(exprs []expr.Any, name string) (in, out bool) {
	var key expr.MetaKey
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Meta:
			key = e.Key
		case *expr.Cmp:
			// A second comparison is another condition.
			if e.Op != expr.CmpOpEq || string(bytes.TrimRight(e.Data, "\x00")) != name || in || out {
				return false, false
			}
			in, out = key == expr.MetaKeyIIFNAME, key == expr.MetaKeyOIFNAME
		case *expr.Counter:
		case *expr.Verdict:
			return in && e.Kind == expr.VerdictAccept, out && e.Kind == expr.VerdictAccept
		default:
			return false, false
		}
	}
	return false, false
}
