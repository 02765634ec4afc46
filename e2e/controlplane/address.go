package controlplane

import (
	"fmt"
	"net"
	"strings"
)

// podSubnets is where the bridges of package containerdtest are.
const podSubnets = "10.90."

// MachineAddress is an IPv4 address of the machine that a node may have: not its
// loopback, and none of the pods' bridges.
func MachineAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() && !strings.HasPrefix(n.IP.String(), podSubnets) {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("none of %v can be a node's", addrs)
}
