package localcri

import (
	"fmt"
	"slices"
	"strings"
)

// Networks that a node may have.
const (
	NetworkCNI    = "cni"    // the machine's plugins, as its configuration says
	NetworkBridge = "bridge" // one of our own, which needs nothing installed
	NetworkNone   = "none"   // pods have their loopback interface alone
)

func networks() []string { return []string{NetworkCNI, NetworkBridge, NetworkNone} }

// networkChoice is how pods get their addresses, and why so.
type networkChoice struct{ kind, why string }

func (c networkChoice) String() string { return c.kind + ": " + c.why }

// inProcessMachine is what the choice of a network depends on.
type inProcessMachine struct {
	asked   string // by somebody; "" for nothing
	last    string // what the node had before; "" for nothing
	cluster bool   // the node is one of a cluster
	dir     string // of CNI configurations
	conf    string // the first of them; "" if there is none
}

// chooseNetwork decides how new pods get their addresses. A node that has a network
// keeps it until somebody asks for another one: its pods could not reach each other.
// In a cluster, the bridge's addresses mean nothing to other nodes.
func chooseNetwork(m inProcessMachine) (networkChoice, error) {
	if m.asked != "" && !slices.Contains(networks(), m.asked) {
		return networkChoice{}, fmt.Errorf("network %q: want one of %s", m.asked, strings.Join(networks(), ", "))
	}
	detected := networkChoice{NetworkBridge, "no CNI configuration is in " + m.dir}
	switch {
	case m.conf != "":
		detected = networkChoice{NetworkCNI, "its configuration is " + m.conf}
	case m.cluster:
		detected = networkChoice{NetworkCNI, "the node is one of a cluster, and waits for a configuration in " + m.dir}
	}
	switch {
	case m.asked != "":
		return networkChoice{m.asked, "it is asked for"}, nil
	case slices.Contains(networks(), m.last) && m.last != detected.kind:
		return networkChoice{m.last, fmt.Sprintf("the node has it already; %s would be chosen now (%s), if it is asked for", detected.kind, detected.why)}, nil
	}
	return detected, nil
}

// confFile is the first of a directory's files that a CNI configuration may be in,
// "" if there is none (CNI specification, "Section 1: Network configuration format";
// the extensions are libcni's).
func confFile(names []string) string {
	var confs []string
	for _, n := range names {
		if strings.HasSuffix(n, ".conflist") || strings.HasSuffix(n, ".conf") || strings.HasSuffix(n, ".json") {
			confs = append(confs, n)
		}
	}
	if len(confs) == 0 {
		return ""
	}
	return slices.Min(confs)
}
