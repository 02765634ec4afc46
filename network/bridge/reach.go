package bridge

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Reach says to which ports of the node's own processes pods can connect. It applies to all
// addresses of the node except 127.0.0.0/8 and ::1, which pods never reach. With the zero value,
// pods can connect to all ports. ICMP, replies to the node, and host ports of pods are not
// limited.
type Reach struct {
	Only bool     // pods reach only these ports; if false, all but these
	TCP  []uint16 // at most 64
	UDP  []uint16 // at most 64
}

// maxReach limits the ports of a protocol, each of which is a rule.
const maxReach = 64

// validate returns an error that names the field.
func (r Reach) validate() error {
	for name, ports := range map[string][]uint16{"TCP": r.TCP, "UDP": r.UDP} {
		if len(ports) > maxReach {
			return fmt.Errorf("Config.Reach.%s: %d ports, want at most %d", name, len(ports), maxReach)
		}
		for _, port := range ports {
			if port == 0 {
				return fmt.Errorf("Config.Reach.%s: port 0, want 1 to 65535", name)
			}
		}
	}
	return nil
}

// rules returns the rules for packets from pods to the node's processes. in matches packets from
// the bridge.
func (r Reach) rules(in []expr.Any) (all [][]expr.Any) {
	named := verdict(expr.VerdictDrop, "")
	if r.Only {
		named = verdict(expr.VerdictAccept, "")
		all = append(all,
			rule(in, connection(expr.CtKeySTATE, ctEstablished, true), named),
			rule(in, layer4(unix.IPPROTO_ICMP), named),
			rule(in, layer4(unix.IPPROTO_ICMPV6), named))
	}
	add := func(proto byte, ports []uint16) {
		for _, port := range ports {
			all = append(all, rule(in, layer4(proto), equal(expr.PayloadBaseTransportHeader, 2, binaryutil.BigEndian.PutUint16(port)), named))
		}
	}
	add(unix.IPPROTO_TCP, r.TCP)
	add(unix.IPPROTO_UDP, r.UDP)
	if r.Only {
		all = append(all, rule(in, verdict(expr.VerdictDrop, "")))
	}
	return all
}

// ParseReach reads a Reach from a list such as "tcp/53,udp/53" (only these ports),
// "!tcp/22" (all but these), "all" or "none".
func ParseReach(text string) (r Reach, err error) {
	switch text {
	case "", "all":
		return Reach{}, nil
	case "none":
		return Reach{Only: true}, nil
	}
	words := strings.Split(text, ",")
	r.Only = !strings.HasPrefix(words[0], "!")
	for _, word := range words {
		name, but := strings.CutPrefix(word, "!")
		proto, number, _ := strings.Cut(name, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil || port == 0 || but == r.Only || proto != "tcp" && proto != "udp" {
			return Reach{}, fmt.Errorf("%q: want all, none, ports such as tcp/53,udp/53, or all but some, such as !tcp/22,!udp/69", word)
		}
		if proto == "tcp" {
			r.TCP = append(r.TCP, uint16(port))
		} else {
			r.UDP = append(r.UDP, uint16(port))
		}
	}
	return r, r.validate()
}
