package logrotate

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The kernel reports the first write after arm, and of no other.
func TestInotify(t *testing.T) {
	n := newIdle()
	defer n.close()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(path string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	told := func(want string) {
		t.Helper()
		select {
		case got := <-n.written():
			if got != want {
				t.Errorf("told of %q, want %q", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("not told of %q", want)
		}
	}
	if n.arm("none", filepath.Join(dir, "none")) {
		t.Error("armed for a file that is not there")
	}
	write(a)
	write(b)
	if !n.arm("A", a) || !n.arm("B", b) {
		t.Fatal("inotify cannot be had")
	}
	write(a)
	told("A")
	write(a) // of which nothing is told
	write(b)
	told("B")
	if !n.arm("A", a) || !n.arm("B", b) {
		t.Fatal("not armed again")
	}
	if err := os.Rename(a, a+".old"); err != nil {
		t.Fatal(err)
	}
	told("A")
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	told("B")
}

// Closing while somebody is to be told, and nobody listens.
func TestInotifyCloses(t *testing.T) {
	n := newIdle()
	path := filepath.Join(t.TempDir(), "a")
	for range 3 {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.arm("A", path)
	}
	if err := os.WriteFile(path, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.close()
}

// What it costs to have a log watched by looks, by a watch that reports each
// write, and by one that reports the first.
func BenchmarkLook(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.Stat(path); err != nil {
				b.Fatal(err)
			}
		}
	})
	n := newIdle()
	defer n.close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.Write([]byte("x")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("armed write told", func(b *testing.B) {
		for b.Loop() {
			if !n.arm("a", path) {
				b.Skip("inotify cannot be had")
			}
			if _, err := f.Write([]byte("x")); err != nil {
				b.Fatal(err)
			}
			<-n.written()
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	dir := b.TempDir()
	m := newManager(b, Config{Runtime: newWriter()})
	line := []byte("2026-01-02T15:04:05.123456789Z stdout F GET /healthz 200 1.234ms request=0123456789abcdef\n")
	var text []byte
	for len(text) < 10<<20 {
		line[24]++
		text = append(text, line...)
	}
	path := filepath.Join(dir, "0.log")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := m.compress(b.Context(), path); err != nil {
			b.Fatal(err)
		}
	}
}
