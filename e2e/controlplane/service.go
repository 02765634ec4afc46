package controlplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
)

// service is an address of the machine whose connections are forwarded to a server at another
// address.
type service struct {
	link    netlink.Link
	address *netlink.Addr
	l       net.Listener
}

// Service lets pods reach the API server at ServiceAddress. The machine has this address until
// the returned value is closed.
func (c *ControlPlane) Service() (io.Closer, error) {
	target := strings.TrimPrefix(c.URL, "https://")
	host, _, err := net.SplitHostPort(ServiceAddress)
	if err != nil {
		return nil, err
	}
	s := &service{}
	if s.link, err = netlink.LinkByName("lo"); err != nil {
		return nil, err
	}
	if s.address, err = netlink.ParseAddr(host + "/32"); err != nil {
		return nil, err
	}
	if err := netlink.AddrAdd(s.link, s.address); err != nil {
		return nil, fmt.Errorf("address %s: %w", host, err)
	}
	if s.l, err = net.Listen("tcp", ServiceAddress); err != nil {
		return nil, errors.Join(err, netlink.AddrDel(s.link, s.address))
	}
	go func() {
		for {
			in, err := s.l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = in.Close() }()
				out, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return s, nil
}

// Close removes the address from the machine.
func (s *service) Close() error {
	return errors.Join(s.l.Close(), netlink.AddrDel(s.link, s.address))
}
