//go:build !linux

package hostports

import "net/netip"

// socket is empty: host ports exist only on Linux.
type socket struct{}

func (socket) close() {}

func room(int, int) error { return nil }

func bind(Claim, bool) (socket, error) { return socket{}, nil }

func (h *Held) checkBindError(_ Claim, err error) error { return err }

// Listener always returns "" here.
func Listener(uint8, netip.Addr, uint16) (podUID, who string) { return "", "" }
