package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/rpcerror"
)

// connectTimeout is the time limit for connecting to 127.0.0.1, and again for ::1.
const connectTimeout = 10 * time.Second

// Forward connects rw to a TCP port in the network namespace at netns. If netns is "", it uses
// the host's. It tries 127.0.0.1, then ::1. It returns when both sides have ended, when the pod's
// side has ended and the client sends nothing for a second, or when ctx ends. It always closes
// rw.
func Forward(ctx context.Context, netns string, port int32, rw io.ReadWriteCloser) error {
	conn, err := dial(ctx, netns, port)
	if err != nil {
		_ = rw.Close()
		return err
	}
	if err := relay(ctx, rw, conn); err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	return nil
}

func dial(ctx context.Context, netns string, port int32) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, rpcerror.Errorf(codes.InvalidArgument, "port %d: must be from 1 to 65535", port)
	}
	var errs []error
	for _, to := range []struct {
		name    string
		family  int
		address unix.Sockaddr
	}{
		{"127.0.0.1", unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}},
		{"::1", unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}},
	} {
		conn, err := connect(ctx, netns, to.family, to.address)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, fmt.Errorf("connect to %s: %w", net.JoinHostPort(to.name, fmt.Sprint(port)), err))
	}
	return nil, errors.Join(errs...)
}

// connect connects to addr from the network namespace at netns. The socket stays in that
// namespace. connect blocks no thread while it waits.
func connect(ctx context.Context, netns string, family int, addr unix.Sockaddr) (net.Conn, error) {
	fd, err := socketIn(netns, family)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer func() { _ = f.Close() }() // net.FileConn duplicates it
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Connect(int(fd), addr) }); err != nil {
		return nil, err
	}
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = connected(ctx, f)
	}
	if err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(f)
}

// connected waits for the result of a connect.
func connected(ctx context.Context, f *os.File) error {
	if err := f.SetWriteDeadline(time.Now().Add(connectTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
			return false
		}
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = err
		case errno != 0:
			result = unix.Errno(errno)
		}
		return true
	})
	return errors.Join(err, result)
}

func socketIn(netns string, family int) (int, error) {
	make := func() (int, error) {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return fd, os.NewSyscallError("socket", err)
	}
	if netns == "" {
		return make()
	}
	space, err := nspin.OpenPinned(netns, unix.CLONE_NEWNET)
	if err != nil {
		return -1, err
	}
	defer func() { _ = space.Close() }()
	fd := -1
	nspin.OnThread(func() (back bool) {
		if _, err = nspin.Control(space, func(ns int) (int, error) { return 0, unix.Setns(ns, unix.CLONE_NEWNET) }); err == nil {
			fd, err = make()
		}
		return false // the thread ends with its goroutine
	})
	return fd, err
}
