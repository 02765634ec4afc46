//go:build !linux

package hostports

import "net/netip"

// socket is empty, since only Linux translates addresses for pods.
type socket struct{}

func (socket) close() {}

func room(int, int) error { return nil }

func bind(Claim) (socket, error) { return socket{}, nil }

func (h *Held) excuse(_ Claim, err error) error { return err }

// Listener is not known on this system.
func Listener(uint8, netip.Addr, uint16) (podUID, who string) { return "", "" }
