package localcri

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of networks.
const (
	NetworkCNI    = "cni"    // the CNI plugins in the machine's configuration
	NetworkBridge = "bridge" // a built-in bridge, which needs no installation
	NetworkNone   = "none"   // pods have only a loopback interface
)

func networks() []string { return []string{NetworkCNI, NetworkBridge, NetworkNone} }

// networkChoice says which network pods get, and for what reason.
type networkChoice struct{ kind, why string }

func (c networkChoice) String() string { return c.kind + ": " + c.why }

// inProcessMachine has the facts on which the choice of a network depends.
type inProcessMachine struct {
	asked   string // the configured network; "" if none
	last    string // the node's previous network; "" if none
	cluster bool   // the node is one of a cluster
	conf    string // first CNI configuration whose plugins are installed; "" if there is none
	noConf  error  // why conf is ""
}

// chooseNetwork decides which network new pods get. A node keeps its network until another one is
// configured, since pods of different networks could not reach each other. In a cluster the
// bridge is not used, since other nodes cannot reach its addresses.
func chooseNetwork(m inProcessMachine) (networkChoice, error) {
	if m.asked != "" && !slices.Contains(networks(), m.asked) {
		return networkChoice{}, fmt.Errorf("network %q: want one of %s", m.asked, strings.Join(networks(), ", "))
	}
	detected := networkChoice{NetworkBridge, fmt.Sprint(m.noConf)}
	switch {
	case m.conf != "":
		detected = networkChoice{NetworkCNI, "its configuration is " + m.conf}
	case m.cluster:
		detected = networkChoice{NetworkCNI, fmt.Sprintf("the node is one of a cluster, and waits for a configuration: %v", m.noConf)}
	}
	switch {
	case m.asked != "":
		return networkChoice{m.asked, "it is asked for"}, nil
	case slices.Contains(networks(), m.last) && m.last != detected.kind:
		return networkChoice{m.last, fmt.Sprintf("the node has it already; %s would be chosen now (%s), if it is asked for", detected.kind, detected.why)}, nil
	}
	return detected, nil
}
