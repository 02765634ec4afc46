//go:build linux

package monitor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/wire"
)

func encode(t testing.TB, m wire.Message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	mustNot(t, err)
	return b
}

// dial connects without this package's client.
func dial(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	mustNot(t, err)
	mustNot(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	mustNot(t, unix.Connect(fd, &unix.SockaddrUnix{Name: path}))
	return fd
}

var hello = wire.Message{Type: wire.Hello, Seq: 1, Min: 1, Max: wire.Version}

// FuzzRequests says anything to a monitor, with and without descriptors. The
// monitor serves others as before.
func FuzzRequests(f *testing.F) {
	p := newPod(f)
	p.start(p.container("a", "exec sleep 1000"))
	for typ := wire.Hello; typ <= wire.AttachDone; typ++ {
		if typ == wire.Quit {
			continue
		}
		f.Add(encode(f, wire.Message{Type: typ, Seq: 2, ID: "a", Files: 3, Handle: 1, Width: 3, Record: []byte("x"), Min: 9, Max: 10, Log: "x"}), uint8(typ), true)
		f.Add(encode(f, wire.Message{Type: typ, Seq: 2, ID: "b"}), uint8(0), typ%2 == 0)
	}
	f.Add([]byte("x"), uint8(4), false)
	f.Add(make([]byte, wire.MaxMessage+1), uint8(0), true)
	f.Fuzz(func(t *testing.T, b []byte, files uint8, greet bool) {
		if len(b) > 100<<10 || len(b) >= 2 && wire.Type(b[0])|wire.Type(b[1])<<8 == wire.Quit {
			return
		}
		fd := dial(t, filepath.Join(p.cfg.StateDir, "mon", p.id, "socket"))
		defer unix.Close(fd)
		if greet {
			mustNot(t, unix.Sendmsg(fd, encode(t, hello), nil, nil, unix.MSG_NOSIGNAL))
		}
		var fds []int
		for range files % 6 {
			fds = append(fds, fd)
		}
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_ = unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL) // or it has closed already
		other, state, err := monitor.Connect(background(t), p.cfg, p.id)
		if err != nil || len(state.Containers) != 1 {
			t.Fatalf("after %q: %+v, %v", b, state, err)
		}
		other.Close()
	})
}

// FuzzAnswers has a client read anything. It ends, with an error.
func FuzzAnswers(f *testing.F) {
	build(f)
	dir := f.TempDir()
	mustNot(f, os.MkdirAll(filepath.Join(dir, "mon", "x"), 0o700))
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	mustNot(f, err)
	f.Cleanup(func() { _ = unix.Close(socket) })
	mustNot(f, unix.Bind(socket, &unix.SockaddrUnix{Name: filepath.Join(dir, "mon", "x", "socket")}))
	mustNot(f, unix.Listen(socket, 4))
	for typ := wire.Hello; typ <= wire.AttachDone; typ++ {
		f.Add(encode(f, wire.Message{Type: typ, Seq: 1, ID: "a", Max: 1, PID: 2, Files: 7, Flags: 1 << 20}), uint8(typ))
		f.Add(encode(f, wire.Message{Type: typ, Seq: 2, ID: "a", Handle: 1, Error: uint64(typ), Flags: 1<<9 - 1}), uint8(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, files uint8) {
		if len(b) == 0 || len(b) > 100<<10 {
			return
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			fd, _, err := unix.Accept4(socket, unix.SOCK_CLOEXEC)
			if err != nil {
				return
			}
			defer unix.Close(fd)
			var buf [4096]byte
			if len(b)%2 == 0 { // a greeting first
				_, _ = unix.Read(fd, buf[:])
				_ = unix.Sendmsg(fd, encode(t, wire.Message{Type: wire.Reply, Seq: 1, Max: 1, PID: 3}), nil, nil, unix.MSG_NOSIGNAL)
			}
			var oob []byte
			if n := files % 6; n > 0 {
				oob = unix.UnixRights([]int{fd, fd, fd, fd, fd}[:n]...)
			}
			for range 3 {
				_ = unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL)
			}
		}()
		c, _, err := monitor.Connect(background(t), monitor.Config{StateDir: dir}, "x")
		if err == nil {
			_ = c.Keep(background(t), "a", nil)
			_, _ = c.Start(background(t), monitor.Container{ID: "a"})
			select {
			case <-c.Done():
			case <-time.After(hang):
				t.Error("the connection does not end")
			}
			c.Files("a").Close()
			c.Close()
		}
		<-served
	})
}

func TestStrangersAreRefused(t *testing.T) {
	p := newPod(t)
	dir := filepath.Join(p.cfg.StateDir, "mon", p.id)
	for _, d := range []string{dir, filepath.Dir(dir), p.cfg.StateDir, p.dir, filepath.Dir(p.dir), filepath.Join(dir, "socket")} {
		mustNot(t, os.Chmod(d, 0o777)) // as it never is
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with what it became
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			done <- e
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "socket")})
		}
		if err != nil {
			done <- err
			return
		}
		_ = unix.Sendmsg(fd, encode(t, hello), nil, nil, unix.MSG_NOSIGNAL)
		if n, _ := unix.Read(fd, make([]byte, 100)); n > 0 {
			err = errors.New("was answered")
		}
		_ = unix.Close(fd)
		done <- err
	}()
	mustNot(t, <-done)
	c, _ := p.connect()
	mustBe(t, c.Forget(context.Background(), "a"), monitor.ErrUnknown)
}

// What a newer client says and this monitor does not know is refused by name,
// and a client that is too new or too old is told so.
func TestOtherVersions(t *testing.T) {
	p := newPod(t)
	socket := filepath.Join(p.cfg.StateDir, "mon", p.id, "socket")
	ask := func(m wire.Message, greet bool) wire.Message {
		fd := dial(t, socket)
		defer unix.Close(fd)
		b := make([]byte, wire.MaxMessage)
		if greet {
			mustNot(t, unix.Sendmsg(fd, encode(t, hello), nil, nil, 0))
			_, err := unix.Read(fd, b)
			mustNot(t, err)
		}
		mustNot(t, unix.Sendmsg(fd, append(encode(t, m), 99, 9, 1, 0, 0, 0, 'x'), nil, nil, 0))
		n, err := unix.Read(fd, b)
		mustNot(t, err)
		answer, err := wire.Decode(b[:n])
		mustNot(t, err)
		return answer
	}
	for _, tc := range []struct {
		name  string
		m     wire.Message
		greet bool
		want  uint64
	}{
		{"newer, speaks ours", wire.Message{Type: wire.Hello, Min: wire.Version, Max: wire.Version + 1}, false, wire.OK},
		{"newer", wire.Message{Type: wire.Hello, Min: wire.Version + 1, Max: wire.Version + 2}, false, wire.Unsupported},
		{"older", wire.Message{Type: wire.Hello, Min: 0, Max: wire.MinVersion - 1}, false, wire.Unsupported},
		{"no greeting", wire.Message{Type: wire.Keep}, false, wire.Unsupported},
		{"unknown request", wire.Message{Type: 60}, true, wire.Unsupported},
	} {
		if got := ask(tc.m, tc.greet); got.Error != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}
