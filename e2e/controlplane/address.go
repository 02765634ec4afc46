package controlplane

import (
	"fmt"
	"net"
	"strings"
)

// podSubnets is the beginning of the addresses of pods in package containerdtest.
const podSubnets = "10.90."

// MachineAddress returns an IPv4 address of the machine that a node can use. It is neither a
// loopback address nor an address of a bridge for pods.
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
