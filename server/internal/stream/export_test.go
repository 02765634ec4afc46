package stream

// Addr is the network and the address to which a runtime's URL leads.
func Addr(raw string) (network, addr string, err error) {
	_, network, addr, err = checkTarget(raw)
	return network, addr, err
}
