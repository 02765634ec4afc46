package portforward

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// echo serves one port of localhost that answers in capitals.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b, _ := io.ReadAll(c) // until the half-close
				_, _ = c.Write([]byte(strings.ToUpper(string(b))))
				_ = c.Close()
			}()
		}
	}()
}

func ask(t *testing.T, netns string, port int) string {
	t.Helper()
	client, near := pair()
	done := make(chan error, 1)
	go func() { done <- Forward(t.Context(), netns, int32(port), near) }()
	go func() {
		_, _ = client.Write([]byte("hello"))
		_ = client.CloseWrite()
	}()
	b, _ := io.ReadAll(client)
	if err := <-done; err != nil {
		t.Errorf("Forward: %v", err)
	}
	return string(b)
}

func TestForward(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Log(address, "is not there:", err)
			continue
		}
		echo(t, l)
		if got := ask(t, "", l.Addr().(*net.TCPAddr).Port); got != "HELLO" {
			t.Errorf("%s: %q", address, got)
		}
	}
}

// A program that closes its connection with data unread resets it. kubectl ends all its
// forwarding after an error (https://github.com/containerd/containerd/issues/9875).
func TestForwardToAProgramThatResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}()
	client, near := pair()
	go func() { _, _ = client.Write([]byte("hello")) }()
	if err := Forward(t.Context(), "", int32(l.Addr().(*net.TCPAddr).Port), near); err != nil {
		t.Errorf("Forward: %v", err)
	}
}

func TestForwardIntoANamespace(t *testing.T) {
	plugintest.RequireMounts(t)
	path := filepath.Join(t.TempDir(), "net")
	if err := nspin.MakePoint(path); err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	var err error
	nspin.OnThread(func() (back bool) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return false
		}
		var space *os.File
		if space, err = nspin.Open("/proc/thread-self/ns/net"); err != nil {
			return false
		}
		defer space.Close()
		if _, err = nspin.Bind(space, path); err == nil {
			err = loUp()
		}
		if err == nil {
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		return false
	})
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if err != nil {
		t.Fatal(err)
	}
	echo(t, l)
	port := l.Addr().(*net.TCPAddr).Port
	if got := ask(t, path, port); got != "HELLO" {
		t.Errorf("inside: %q", got)
	}
	// The host has nobody there, in general.
	_, near := pair()
	if err := Forward(t.Context(), path+"none", int32(port), near); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("into no namespace: %v", err)
	}
}

func loUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	client, near := pair()
	err = Forward(t.Context(), "", int32(port), near)
	if !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "connect to 127.0.0.1:") {
		t.Errorf("Forward: %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the client's stream is open")
	}
	for _, bad := range []int32{0, -1, 65536} {
		_, near := pair()
		if err := Forward(t.Context(), "", bad, near); status.Code(err) != codes.InvalidArgument {
			t.Errorf("port %d: %v", bad, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, near = pair()
	if err := Forward(ctx, "", int32(port), near); err == nil {
		t.Error("Forward with an ended context")
	}
}
