package e2e_test

import (
	"net"
	"sync"
	"testing"
	"time"
)

// slowly listens, and passes on to target whatever comes, each way with a
// delay. It returns where it listens.
func slowly(t *testing.T, target string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			var both sync.WaitGroup
			both.Go(func() { late(out, in, delay) })
			both.Go(func() { late(in, out, delay) })
			go func() {
				both.Wait()
				_, _ = in.Close(), out.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// late copies, and each byte arrives delay after it came.
func late(to, from net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	line := make(chan piece, 10000)
	go func() {
		defer close(line)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				line <- piece{b[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range line {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	if c, ok := to.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	for range line { // nobody takes it any more
	}
}
