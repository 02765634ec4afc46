//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

var address = flag.String("address", "192.0.2.1", "IPv4 `address` that the plugin static assigns")

// static is a plugin that assigns one address and no route to the namespace. Everything that
// it creates is in the namespace, so the kernel deletes it with the namespace.
type static struct{ ip netip.Addr }

func newStatic() (network.Plugin, error) {
	ip, err := netip.ParseAddr(*address)
	if err != nil || !ip.Is4() {
		return nil, fmt.Errorf("-address is %q; want an IPv4 address", *address)
	}
	return static{ip}, nil
}

func (static) Name() string                                    { return "static" }
func (static) Durable() bool                                   { return false }
func (static) Status() error                                   { return nil }
func (static) Recovered(context.Context, []network.Kept) error { return nil }
func (static) Run(context.Context, func()) error               { return nil }

// Plan returns the address to assign.
func (s static) Plan(context.Context, network.Attachment) ([]byte, error) {
	return s.ip.MarshalBinary()
}

// SetUp assigns the planned address to the interface lo.
func (static) SetUp(_ context.Context, _ network.Attachment, netns string, saved []byte, _ *os.File) (network.Result, error) {
	var ip netip.Addr
	if err := ip.UnmarshalBinary(saved); err != nil {
		return network.Result{}, err
	}
	err := inNetns(netns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for _, set := range []struct {
			call uint
			to   netip.Addr
		}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFNETMASK, netip.AddrFrom4([4]byte{255, 255, 255, 255})}} {
			req, err := unix.NewIfreq("lo:1")
			if err == nil {
				err = req.SetInet4Addr(set.to.AsSlice())
			}
			if err == nil {
				err = unix.IoctlIfreq(fd, set.call, req)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return network.Result{IPs: []netip.Addr{ip}}, err
}

// TearDown does nothing, since the address is deleted with the namespace.
func (static) TearDown(context.Context, network.Attachment, string, []byte, *os.File) error {
	return nil
}

// inNetns calls f on a separate thread in the network namespace at path. Processes that f
// starts are also in this namespace. The thread ends after f.
func inNetns(path string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		space, err := os.Open(path)
		if err == nil {
			defer func() { _ = space.Close() }()
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
