// Package systemdtest stands in for systemd, for tests of what notifies it.
package systemdtest

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long Next waits, however slow the machine.
const patience = 5 * time.Minute

// Listener is the socket that a service notifies (sd_notify(3)).
type Listener struct {
	// Path is what NOTIFY_SOCKET is to be.
	Path string

	t    testing.TB
	conn *net.UnixConn
}

// New returns a Listener that ends with the test.
func New(t testing.TB) *Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "nwsd") // t.TempDir is too long for a socket's path
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

// Next is what it is told next.
func (l *Listener) Next() string {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	b := make([]byte, 1024)
	n, err := l.conn.Read(b)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b[:n])
}

// Close closes it before the test's end.
func (l *Listener) Close() { _ = l.conn.Close() }
