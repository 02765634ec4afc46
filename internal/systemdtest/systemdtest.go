// Package systemdtest replaces systemd in tests of sd_notify(3).
package systemdtest

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// nextTimeout limits the time for which Next waits. It is long enough for slow machines.
const nextTimeout = 5 * time.Minute

// Listener is a notification socket (sd_notify(3)).
type Listener struct {
	// Path is the socket's path, the value of NOTIFY_SOCKET for the tested program.
	Path string

	t    testing.TB
	conn *net.UnixConn
}

// New returns a Listener. It is closed at the end of the test.
func New(t testing.TB) *Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "nwsd") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Listener{Path: path, t: t, conn: conn}
}

// Next returns the next notification. It fails the test if none arrives in time.
func (l *Listener) Next() string {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(nextTimeout)); err != nil {
		l.t.Fatal(err)
	}
	b := make([]byte, 1024)
	n, err := l.conn.Read(b)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b[:n])
}

// Close closes the socket before the end of the test.
func (l *Listener) Close() { _ = l.conn.Close() }
