package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What is asked for in vain leaves nothing behind, and what is stopped ends the
// goroutine, from whichever state.
func TestNotifierStartsAndEnds(t *testing.T) {
	n := newNotifier()
	if _, err := n.Notify(Signal{File: filepath.Join(t.TempDir(), "none")}, func() {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing file: %v", err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Notify(Signal{File: plain}, func() {}); err == nil {
		t.Error("a file that cannot be waited for is taken")
	}
	if n.poll != nil || len(n.signals) > 0 {
		t.Errorf("left behind: %+v", n)
	}
	for range 3 { // /proc/mounts can be waited for by anybody
		a, err := n.Notify(Signal{File: "/proc/self/mounts"}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		b, err := n.Notify(Signal{File: "/proc/self/mounts"}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		a()
		a() // a second time does nothing
		if n.poll == nil {
			t.Error("it ended with somebody waiting")
		}
		b()
		if n.poll != nil {
			t.Error("it goes on with nobody waiting")
		}
	}
}
